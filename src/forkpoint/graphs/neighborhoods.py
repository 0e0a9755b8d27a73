"""A function of all edges of a vertex, which is called again when one of them changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from forkpoint.functions import MapStateDescriptor
from forkpoint.graph.specs import DeclaredState
from forkpoint.graphs.edges import PRESENT
from forkpoint.graphs.records import at_end, maker, neighbor_type, neighborhood_type
from forkpoint.runtime.exchange.batch import Batch, DerivedBatch
from forkpoint.runtime.operators.base import NOT_USERS, Epoch, KeyedOperator, Outputs, TaskInfo, user_error
from forkpoint.runtime.operators.emission import Collector
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation, Types
from forkpoint.types.keys import key_form


@dataclass(frozen=True)
class NeighborhoodsSpec(KeyedSpec):
    """Net changes of edges, by source and, as the second input, by target. ``value_type``: of edges, None without values."""

    kind = "graph_neighborhoods"
    follows_inputs = True

    fn: Callable[[Any, list[Any]], Any]
    vertex_type: TypeInformation
    value_type: TypeInformation | None
    result_type: TypeInformation

    @property
    def neighbors(self) -> MapStateDescriptor[Any, Any]:
        """The values of a vertex's edges, by the other end and by whether they lead there."""
        key = key_form(Types.TUPLE([self.vertex_type, Types.BOOLEAN()]))
        return MapStateDescriptor("neighbors", key, self.value_type or PRESENT)

    def states(self) -> list[DeclaredState]:
        return [DeclaredState.of(self.neighbors)]

    def instance(self, info: TaskInfo, state: ManagedState) -> Neighborhoods:
        return Neighborhoods(info, state.keyed, self)


class Neighborhoods(KeyedOperator):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: NeighborhoodsSpec) -> None:
        super().__init__(info, backend)
        self._spec, self._stage = spec, info.operator.stage
        self._collector = Collector(info.operator)
        self._make = maker(neighborhood_type(spec.vertex_type, spec.result_type))
        self._neighbor = maker(neighbor_type(spec.vertex_type, spec.value_type))
        stored = spec.neighbors
        self._ends, self._values = stored.key_type, stored.value_type
        backend.record("map", stored.name, self._values, self._ends)
        self._sid = backend.sid(stored.name)
        self._log = ChangeLog()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        backend, self._log = self._backend, ChangeLog()
        changes = self._changes(inputs)
        vertices = list(map(backend.key_type.decode, changes))
        backend.begin(vertices, epoch.processing_time_ms, lambda: epoch.window.start)
        prefixes = backend.prefixes(self._sid)
        found = backend.store.scan_prefixes(prefixes)
        self._collector.begin(epoch)
        results: list[Any] = []
        extend, position = self._collector.into(results), 0
        for vertex, changed, prefix, count in zip(vertices, changes.values(), prefixes, found.counts, strict=True):
            rows = slice(position, position + count)
            position += count
            edges: dict[bytes, bytes | None] = {
                key[len(prefix) :]: data for key, data in zip(found.keys[rows], found.values[rows], strict=True)
            }
            edges.update(changed)
            self._log.add((prefix + end for end in changed), changed.values())
            extend([self._make((vertex, self._result(vertex, edges)))])
        place = at_end(list(changes), epoch, self._stage)
        return self._collector.outputs(DerivedBatch(len(results), place, values=results, type=self._type))

    def _changes(self, inputs: list[Batch]) -> dict[bytes, dict[bytes, bytes | None]]:
        """By vertex, what is to be stored for each of its edges that has changed; None if the edge is gone."""
        changes: dict[bytes, dict[bytes, bytes | None]] = {}
        vertex, ends, values = self._backend.key_type.encode, self._ends.encode, self._values.encode
        with_values = self._spec.value_type is not None
        for batch, leads_there in zip(inputs, (True, False), strict=True):
            for change in batch.values:
                here, there = (change.source, change.target) if leads_there else (change.target, change.source)
                data = None if change.removed else values(change.value if with_values else True)
                changes.setdefault(vertex(here), {})[ends((there, leads_there))] = data
        return changes

    def _result(self, vertex: Any, edges: dict[bytes, bytes | None]) -> Any:
        neighbors = list(self._neighbors(edges))
        try:
            return self._spec.fn(vertex, neighbors)
        except NOT_USERS:
            raise
        except BaseException as error:
            raise user_error(self._uid, error, neighbors, vertex, keyed=True) from error

    def _neighbors(self, edges: dict[bytes, bytes | None]) -> Iterator[Any]:
        for end, data in sorted(edges.items()):  # as in state, so that the order does not depend on where epochs end
            if data is not None:
                value = () if self._spec.value_type is None else (self._values.decode(data),)
                yield self._neighbor((*self._ends.decode(end), *value))

    def changes(self) -> ChangeLog:
        return self._log
