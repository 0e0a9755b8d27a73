"""What a program calls: a graph whose edges are a stream."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from forkpoint.api.streams.base import check_type
from forkpoint.api.streams.keys import ONE_KEY
from forkpoint.api.streams.streams import DataStream, KeyedStream
from forkpoint.errors import GraphError
from forkpoint.graph.specs import OperatorSpec
from forkpoint.graph.transformations import KeyBy
from forkpoint.graphs.components import ColoringSpec, ComponentsSpec
from forkpoint.graphs.degrees import DegreesSpec
from forkpoint.graphs.edges import EdgesSpec
from forkpoint.graphs.estimates import PAIRS, TriangleEstimateSpec
from forkpoint.graphs.neighborhoods import NeighborhoodsSpec
from forkpoint.graphs.records import (
    color_type,
    component_type,
    degree_type,
    distance_type,
    edge_change_type,
    edge_type,
    estimate_type,
    neighborhood_type,
    triangles_type,
)
from forkpoint.graphs.shortest_paths import ShortestPathsSpec
from forkpoint.graphs.snapshots import changes_of, snapshots
from forkpoint.graphs.spanner import SpannerSpec
from forkpoint.graphs.triangles import TrianglesSpec
from forkpoint.types import TypeInformation, Types
from forkpoint.types.keys import key_form

if TYPE_CHECKING:
    from forkpoint.api.streams.windowed import WindowedStream
    from forkpoint.graphs.saved import SavedGraph
    from forkpoint.state_processor import LiveState, SavepointReader


@dataclass(frozen=True)
class _Pair:
    """The key of an edge."""

    source: KeyBy
    target: KeyBy

    def __call__(self, element: Any) -> tuple[Any, Any]:
        return self.source.selector(element), self.target.selector(element)


@dataclass(frozen=True)
class _EitherWay:
    """The key of a pair of vertices, which edges in both directions have."""

    vertex_type: TypeInformation

    def __call__(self, change: Any) -> tuple[Any, Any]:
        encode, first, second = self.vertex_type.encode, change.source, change.target
        return (first, second) if encode(first) <= encode(second) else (second, first)


@dataclass(frozen=True)
class Graph:
    """A directed graph that changes. Created by ``Graph.from_edges``.

    Its edges are a set: an edge that is added twice is there once, and one removal removes it. Removing an edge that is not there
    does nothing, and is counted (metric ``missing_edges_removed``). A vertex is there as long as it has an edge.
    """

    _elements: KeyedStream[Any, Any]
    _spec: EdgesSpec
    _uid: str | None = None

    @cached_property
    def _changes(self) -> DataStream[Any]:
        """Of the operator that keeps the edges, which a job has if it uses them: spanners and the graphs of windows do not."""
        changes = self._elements._operator(self._spec, "graph edges", edge_change_type(self._vertex_type, self._value_type))
        return changes if self._uid is None else changes.uid(f"{self._uid}-edges")

    @property
    def _vertex_type(self) -> TypeInformation:
        return self._spec.vertex_type

    @property
    def _value_type(self) -> TypeInformation | None:
        return self._spec.value_type

    @staticmethod
    def from_edges(
        stream: DataStream[Any],
        source: Any = "source",
        target: Any = "target",
        removed: Any = None,
        value: Any = None,
        *,
        vertex_type: Any = None,
        value_type: Any = None,
        uid: str | None = None,
    ) -> Graph:
        """The graph of a stream's edges.

        ``source``, ``target``: the ends of an element's edge, and ``value`` what the edge carries: each a field's name or index,
        or a function of the element. ``removed``: likewise, whether the element removes its edge; without it all are additions.
        ``vertex_type``, ``value_type``: types of vertices and values, by default those of the fields. ``uid``: the prefix of the
        uids of the graph's operators. GraphError for fields that are not there, or if source and target have different types.
        """
        check_type(stream, DataStream, "Graph.from_edges")
        ends = stream._key_of(source, vertex_type), stream._key_of(target, vertex_type)
        of = ends[0].key_type
        if of != ends[1].key_type:
            raise GraphError(
                f"Graph.from_edges(): the source is {of} and the target {ends[1].key_type}; make them one "
                "type, or pass vertex_type"
            )
        columns = None
        if all(end.columns is not None and end.single for end in ends):
            columns = tuple(name for end in ends for name in end.columns or ())
        pair = KeyBy(_Pair(*ends), Types.TUPLE([of, of]), columns, single=False)
        removes = None if removed is None else stream._key_of(removed, Types.BOOLEAN())
        if isinstance(removed, str | int) and stream._key_of(removed, None).key_type not in (Types.BOOLEAN(), Types.ANY()):
            raise GraphError(
                f"Graph.from_edges(): removed={removed!r} is not a field of booleans; pass a function that returns one"
            )
        carries = None if value is None else stream._key_of(value, value_type)
        spec = EdgesSpec(of, removes, carries)
        return Graph(stream._keyed(pair), spec, uid)

    @staticmethod
    def of_savepoint(savepoint: str | os.PathLike[str] | SavepointReader | LiveState, uid: str) -> SavedGraph:
        """The graph with this ``uid`` that a savepoint (a path, a URL or a reader) or a running job has.

        Raises SavepointNotFound and StateNotFound.
        """
        from forkpoint.graphs.saved import SavedGraph

        return SavedGraph.of(savepoint, uid)

    def changes(self) -> DataStream[Any]:
        """The net changes of each epoch: EdgeChange(source, target, removed), and the edge's ``value`` if it has one.

        A job keeps the graph's edges in its state if it calls this or asks for a result other than spanners and snapshots.
        An edge whose value changes is removed with the old value, then added with the new one. A change has the timestamp of the
        element that decided it.
        """
        return self._changes

    def degrees(self) -> KeyedStream[Any, Any]:
        """Degree(vertex, in_degree, out_degree, degree) of each vertex whose degrees an epoch has changed, keyed by vertex.

        A vertex that has lost its last edge has degree 0. An edge from a vertex to itself counts in both directions.
        """
        return self._at_both_ends(DegreesSpec(self._vertex_type), "degrees", degree_type(self._vertex_type))

    def aggregate_neighbors(self, function: Callable[[Any, list[Any]], Any], output_type: Any = None) -> KeyedStream[Any, Any]:
        """Neighborhood(vertex, result) of each vertex of which an epoch has changed an edge, keyed by vertex.

        ``result`` is ``function(vertex, neighbors)``, with a list of Neighbor(vertex, outgoing), one for each edge of the
        vertex, and the edge's ``value`` if edges have one; it is empty if the vertex has lost its last edge. ``output_type``:
        of the result, by default as annotated. An epoch reads all edges of the vertices that it calls the function for.
        """
        if not callable(function):
            raise GraphError(f"aggregate_neighbors() takes a function of a vertex and its neighbors, not {function!r}")
        of = self._changes._output_type(output_type, function, "__call__") or Types.ANY()
        spec = NeighborhoodsSpec(function, self._vertex_type, self._value_type, of)
        return self._at_both_ends(spec, "neighborhoods", neighborhood_type(self._vertex_type, of))

    def connected_components(self) -> KeyedStream[Any, Any]:
        """Component(vertex, component) of each vertex whose component an epoch has changed, keyed by vertex.

        Directions do not count. ``component`` is a number, None if the vertex has lost its last edge. When components join, all
        take the number of the largest of them; when one falls apart, its largest part keeps the number, and every other part gets
        one that no component has had. One subtask does the work; an epoch reads only the vertices that it has to visit.
        """
        return self._on_one(ComponentsSpec(self._vertex_type), "components", component_type(self._vertex_type))

    def two_coloring(self) -> KeyedStream[Any, Any]:
        """Color(vertex, color) of each vertex whose color an epoch has changed, keyed by vertex: the graph is bipartite if no
        vertex has color -1.

        ``color``: 0 or 1 such that no edge joins equal colors; -1 for all vertices of a component with an odd cycle, where there
        is no such coloring; None if the vertex has lost its last edge. Directions do not count. Runs as ``connected_components``.
        """
        return self._on_one(ColoringSpec(self._vertex_type), "colors", color_type(self._vertex_type))

    def triangles(self) -> KeyedStream[Any, Any]:
        """Triangles(vertex, triangles): in how many triangles a vertex is, if an epoch has changed that; keyed by vertex.

        Directions do not count, nor do edges from a vertex to itself. The graph has a third of the sum over all vertices. One
        subtask does the work; an epoch reads the neighbors of that end of each changed edge that has fewer of them.
        """
        return self._on_one(TrianglesSpec(self._vertex_type), "triangles", triangles_type(self._vertex_type))

    def triangle_estimate(self, size: int, seed: int = 0) -> DataStream[Any]:
        """TriangleEstimate(triangles, edges, sampled) of the whole graph, once for each epoch that changes edges.

        ``triangles``: about how many there are. It is unbiased, and comes from a uniform sample of ``size`` edges (at least 3),
        which one subtask keeps; exact as long as all edges have been in the sample. ``edges``, ``sampled``: how many there are.
        As for ``triangles()``, directions do not count, nor do edges from a vertex to itself; all subtasks share the work of
        knowing which edges there are. The same ``seed`` gives the same numbers.
        A restored job keeps its ``size`` (GraphError otherwise).
        """
        if not isinstance(size, int) or size < 3:
            raise GraphError(f"triangle_estimate(size={size!r}): a sample that can have a triangle has at least 3 edges")
        of = self._vertex_type
        key = KeyBy(_EitherWay(key_form(of)), Types.TUPLE([of, of]), None, single=False)
        pairs = self._changes._keyed(key)._operator(PAIRS, "graph pairs", self._changes._type)
        if self._uid is not None:
            pairs = pairs.uid(f"{self._uid}-pairs")
        spec = TriangleEstimateSpec(size, seed, of)
        estimates = pairs._keyed(ONE_KEY)._operator(spec, "graph triangle estimate", estimate_type())
        return estimates if self._uid is None else estimates.uid(f"{self._uid}-triangle-estimate")

    def shortest_paths(self, start: Any) -> KeyedStream[Any, Any]:
        """Distance(vertex, distance) of each vertex whose distance from ``start`` an epoch has changed, keyed by vertex.

        ``distance``: the length of a shortest path along the edges' directions, None if there is none any more. Edges have the
        length ``value``, which is more than 0 (UserFunctionError otherwise); without values, each has 1. One subtask does the
        work; an epoch reads the edges of the vertices whose distance may have changed. ``start`` has distance 0 even without
        edges. A saved job with another ``start`` computes all distances again with the next changes of edges.

        Raises GraphError for values that are no numbers, and TypeNotSupported for a ``start`` that is no vertex.
        """
        of = self._value_type
        if of not in (None, Types.INT(), Types.LONG(), Types.FLOAT(), Types.DOUBLE()):
            raise GraphError(f"shortest_paths(): edges have values of type {of}; give from_edges() a value= that is a number")
        self._vertex_type.accept(start)
        length = Types.LONG() if of in (None, Types.INT(), Types.LONG()) else Types.DOUBLE()
        spec = ShortestPathsSpec(start, self._vertex_type, None if of is None else length)
        return self._on_one(spec, "distances", distance_type(self._vertex_type, length))

    def spanner(self, stretch: int = 3) -> DataStream[Any]:
        """Edge(source, target) of each edge that enters a spanner, once: few edges, which keep distances up to a factor.

        Whatever edge the graph has, a path of at most ``stretch`` (at least 2) of the spanner's edges joins its ends; directions
        do not count. State has these edges only, at most about n ** (1 + 1/k) of a graph with n vertices, for a ``stretch`` of
        2 k - 1. One subtask does the work. GraphError for a graph with ``removed``: edges that have been left out are not known.
        """
        if not isinstance(stretch, int) or stretch < 2:
            raise GraphError(f"spanner(stretch={stretch!r}): takes a whole number from 2, since 1 keeps every edge")
        if self._spec.removed is not None:
            raise GraphError("spanner() knows additions only; leave out removed=, and filter the stream")
        spec, read = SpannerSpec(stretch, self._vertex_type), changes_of(self._elements, self._spec)
        edges = read._keyed(ONE_KEY)._operator(spec, "graph spanner", edge_type(self._vertex_type))
        return edges if self._uid is None else edges.uid(f"{self._uid}-spanner")

    def snapshots(self, size: timedelta | int) -> WindowedStream[Any, Any, Any]:
        """The graph of each event-time window of this size (int ms), for ``agg``, ``reduce``, ``process`` and the like by vertex.

        It has the edges that elements of the window add, without those that a later element of the window removes; other
        windows and epochs do not matter. Elements are Incidence(vertex, neighbor, outgoing), and the edge's ``value`` if edges
        have one: two for each edge, one at each end. The stream needs timestamps and watermarks; late elements are dropped.
        """
        return snapshots(self._elements, self._spec, size, self._uid)

    def _at_both_ends(self, spec: OperatorSpec, name: str, of: TypeInformation) -> KeyedStream[Any, Any]:
        by_source, by_target = self._changes.key_by("source"), self._changes.key_by("target")
        return self._named(by_source._two_inputs(by_target, spec, f"graph {name}", of), name)

    def _on_one(self, spec: OperatorSpec, name: str, of: TypeInformation) -> KeyedStream[Any, Any]:
        return self._named(self._changes._keyed(ONE_KEY)._operator(spec, f"graph {name}", of), name)

    def _named(self, results: DataStream[Any], name: str) -> KeyedStream[Any, Any]:
        return (results if self._uid is None else results.uid(f"{self._uid}-{name}")).key_by("vertex")
