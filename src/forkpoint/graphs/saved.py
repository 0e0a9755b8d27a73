"""The graph that a savepoint has, for libraries that look at a whole graph."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from forkpoint.errors import ConfigError, GraphError
from forkpoint.extras import require
from forkpoint.state_processor import LiveState, SavepointReader


@dataclass(frozen=True)
class SavedGraph:
    """The edges of a savepoint or of a running job. Created by ``Graph.of_savepoint``."""

    _edges: Any

    @staticmethod
    def of(savepoint: str | os.PathLike[str] | SavepointReader | LiveState, uid: str) -> SavedGraph:
        found = savepoint if isinstance(savepoint, SavepointReader | LiveState) else SavepointReader.read(savepoint)
        return SavedGraph(found.state(f"{uid}-edges", "edges"))

    def to_networkx(self) -> Any:
        """A ``networkx.DiGraph``, whose edges have the attribute ``value``: True if the graph's edges have none.

        It is in memory as a whole. Raises ConfigError if networkx is not installed.
        """
        require("networkx", "to_networkx()")
        import networkx as nx

        graph: nx.DiGraph[Any] = nx.DiGraph()
        graph.add_edges_from((*entry.key, {"value": entry.value}) for entry in self._edges.rows())
        return graph

    def to_spark(self, spark: Any) -> tuple[Any, Any]:
        """DataFrames of vertices (``id``) and edges (``src``, ``dst``, ``value``), as GraphFrames takes them.

        Each task reads one file of the savepoint. Raises GraphError for the graph of a running job.
        """
        if not hasattr(self._edges, "to_spark"):
            raise GraphError("a running job's graph has no DataFrames; take a savepoint, and read that")
        rows = self._edges.to_spark(spark)
        edges = rows.selectExpr("key_f0 AS src", "key_f1 AS dst", "value")
        vertices = edges.selectExpr("src AS id").union(edges.selectExpr("dst AS id")).distinct()
        return vertices, edges

    def to_graphframe(self, spark: Any) -> Any:
        """A ``graphframes.GraphFrame`` of ``to_spark``'s DataFrames.

        Raises ConfigError if graphframes-py is not installed, or the session has not its jar, and GraphError as ``to_spark``.
        """
        require("graphframes", "to_graphframe()")
        from graphframes import GraphFrame

        vertices, edges = self.to_spark(spark)
        try:
            return GraphFrame(vertices, edges)
        except Exception as error:  # of Py4J
            if "java.lang.ClassNotFoundException: org.graphframes" not in str(error):
                raise
            jar = f"io.graphframes:graphframes-spark{spark.version[0]}_2.13:{version('graphframes-py')}"
            raise ConfigError(
                f"to_graphframe() needs the jar of GraphFrames, which this Spark session has not; start Spark with the setting "
                f"spark.jars.packages={jar}, or with the jar's path in spark.jars"
            ) from error
