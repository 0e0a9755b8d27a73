"""Graphs that change: edges as a stream of additions and removals, results as keyed streams of changes.

    Graph               ``Graph.from_edges(stream)``, then ``degrees()``, ``aggregate_neighbors()``,
                        ``connected_components()``, ``two_coloring()``, ``triangles()``,
                        ``triangle_estimate(size)``, ``shortest_paths(start)``, ``spanner(stretch)``,
                        ``snapshots(size)``
    SavedGraph          ``Graph.of_savepoint(path, uid)``, for networkx, Spark and GraphFrames

`edges` makes net changes of what comes in; `degrees` and `neighborhoods` follow them by vertex. `forest` keeps the components
of a graph, over `entries` of state of which it reads only those it touches; `components`, `triangles`, `shortest_paths`,
`spanner` and `estimates`, from a sample, are the operators on that state, and `whole` is what they have in common.
`snapshots` are graphs of windows. `saved` gives a graph to other libraries.
"""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint.graphs.graph import Graph
    from forkpoint.graphs.saved import SavedGraph

__getattr__ = loader(__name__)

__all__ = ["Graph", "SavedGraph"]
