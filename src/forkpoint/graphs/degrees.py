"""Degrees: how many edges lead into a vertex, and out of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forkpoint.functions import ValueStateDescriptor
from forkpoint.graph.specs import DeclaredState
from forkpoint.graphs.records import degree_type, net_changes
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.exchange.grouping import group_by_key
from forkpoint.runtime.operators.base import Epoch, KeyedOperator, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation, Types

COUNTS = Types.TUPLE([Types.LONG(), Types.LONG()])


@dataclass(frozen=True)
class DegreesSpec(KeyedSpec):
    """Net changes of edges, by source and, as the second input, by target."""

    kind = "graph_degrees"
    follows_inputs = True

    vertex_type: TypeInformation

    def states(self) -> list[DeclaredState]:
        return [DeclaredState.of(ValueStateDescriptor("degrees", COUNTS))]

    def instance(self, info: TaskInfo, state: ManagedState) -> Degrees:
        return Degrees(info, state.keyed, self)


class Degrees(KeyedOperator):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: DegreesSpec) -> None:
        super().__init__(info, backend)
        by_target = info.operator.key_of(1)
        assert by_target is not None
        self._inputs = (self._key, by_target)
        self._of, self._stage = degree_type(spec.vertex_type), info.operator.stage
        self._sid = backend.sid("degrees")
        backend.record("value", "degrees", COUNTS)
        self._log = ChangeLog()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        backend, encode = self._backend, self._backend.key_type.encode
        outgoing: dict[bytes, int] = {}
        incoming: dict[bytes, int] = {}
        for batch, key, counts in zip(inputs, self._inputs, (outgoing, incoming), strict=True):
            groups = group_by_key(batch, key)
            if groups.keys:
                signs = np.array([-1 if change.removed else 1 for change in batch.values], np.int64)[groups.order]
                counts.update(zip(map(encode, groups.keys), np.add.reduceat(signs, groups.starts[:-1]).tolist(), strict=True))
        touched = [name for name in outgoing | incoming if outgoing.get(name) or incoming.get(name)]
        vertices = list(map(backend.key_type.decode, touched))
        backend.begin(vertices, epoch.processing_time_ms, lambda: epoch.window.start)
        names = backend.prefixes(self._sid)
        self._log, rows = ChangeLog(), []
        for vertex, encoded, name, data in zip(vertices, touched, names, backend.store.get_many(names), strict=True):
            before_in, before_out = (0, 0) if data is None else COUNTS.decode(data)
            into, out = before_in + incoming.get(encoded, 0), before_out + outgoing.get(encoded, 0)
            self._log.keys.append(name)
            self._log.values.append(COUNTS.encode((into, out)) if into or out else None)
            rows.append((vertex, into, out, into + out))
        return Outputs(net_changes(rows, touched, epoch, self._stage, self._of))

    def changes(self) -> ChangeLog:
        return self._log
