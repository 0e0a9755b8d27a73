"""Connected components, and the coloring of a bipartite graph, which is two components of its double cover.

The double cover has two vertices (v, False) and (v, True) for each vertex v, and joins each end of an edge with the other end's
other one. Both vertices of v are in one component if, and only if, v's component has an odd cycle.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from forkpoint.graph.specs import DeclaredState
from forkpoint.graphs.entries import Pair
from forkpoint.graphs.forest import Forest, forest_states
from forkpoint.graphs.records import color_type, component_type
from forkpoint.graphs.whole import OfWholeGraph
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.types import TypeInformation, Types
from forkpoint.types.keys import key_form
from forkpoint.types.kinds.records import RecordType

_TWO, _SIDES = b"\x92", (Types.BOOLEAN().encode(False), Types.BOOLEAN().encode(True))


def pair_deltas(changes: Batch, vertex: TypeInformation) -> dict[Pair, int]:
    """By how much an epoch's changes of edges add to the directions of each pair of encoded vertices."""
    deltas: dict[Pair, int] = {}
    encode, get = vertex.encode, deltas.get
    for change in changes.values:
        first, second = encode(change.source), encode(change.target)
        pair = (first, second) if first <= second else (second, first)
        deltas[pair] = get(pair, 0) + (-1 if change.removed else 1)
    return deltas


@dataclass(frozen=True)
class ComponentsSpec(KeyedSpec):
    """Net changes of edges, with one key for all."""

    kind = "graph_components"
    follows_inputs = True

    vertex_type: TypeInformation

    @property
    def node_type(self) -> TypeInformation:
        """The vertices of the forest."""
        return key_form(self.vertex_type)

    def states(self) -> list[DeclaredState]:
        return list(map(DeclaredState.of, forest_states(self.node_type)))

    def instance(self, info: TaskInfo, state: ManagedState) -> OfForest:
        return Components(info, state.keyed, self, component_type(self.vertex_type))


@dataclass(frozen=True)
class ColoringSpec(ComponentsSpec):
    kind = "graph_coloring"

    @property
    def node_type(self) -> TypeInformation:
        return key_form(Types.TUPLE([self.vertex_type, Types.BOOLEAN()]))

    def instance(self, info: TaskInfo, state: ManagedState) -> OfForest:
        return Coloring(info, state.keyed, self, color_type(self.vertex_type))


class OfForest(OfWholeGraph):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: ComponentsSpec, of: RecordType) -> None:
        super().__init__(info, backend, spec.vertex_type, of)
        self._forest = Forest(backend, spec.node_type)

    def _update(self, changes: Batch) -> dict[bytes, Any]:
        self._log = self._forest.update(self._edges(pair_deltas(changes, self._vertex)))
        return dict(self._results())

    @abstractmethod
    def _edges(self, deltas: dict[Pair, int]) -> dict[Pair, int]:
        """The changes of the forest's edges."""

    @abstractmethod
    def _results(self) -> Iterable[tuple[bytes, Any]]:
        """The vertices whose result has changed, with the new one."""


class Components(OfForest):
    def _edges(self, deltas: dict[Pair, int]) -> dict[Pair, int]:
        return deltas

    def _results(self) -> Iterable[tuple[bytes, Any]]:
        return ((vertex, after) for vertex, before, after in self._forest.components() if before != after)


class Coloring(OfForest):
    def _edges(self, deltas: dict[Pair, int]) -> dict[Pair, int]:
        cover: dict[Pair, int] = {}
        for (first, second), delta in deltas.items():
            for here, there in (_SIDES, _SIDES[::-1]):
                one, two = _TWO + first + here, _TWO + second + there
                cover[(one, two) if one <= two else (two, one)] = delta
        return cover

    def _results(self) -> Iterable[tuple[bytes, Any]]:
        touched = dict.fromkeys(node[1:-1] for node, before, after in self._forest.components() if before != after)
        self._forest.load(_TWO + vertex + side for vertex in touched for side in _SIDES)
        for vertex in touched:
            both = (self._forest.component(_TWO + vertex + side) for side in _SIDES)
            before, after = (_color(first, second) for first, second in zip(*both, strict=True))
            if before != after:
                yield vertex, after


def _color(first: int | None, second: int | None) -> int | None:
    """The color of a vertex whose two vertices in the double cover are in these components."""
    if first is None or second is None:
        return None
    return -1 if first == second else int(first > second)
