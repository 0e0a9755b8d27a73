"""The edges of a graph: a set, of which an epoch's additions and removals leave the net changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forkpoint.errors import TypeNotSupported
from forkpoint.functions import ValueStateDescriptor
from forkpoint.graph.specs import DeclaredState
from forkpoint.graph.transformations import KeyBy
from forkpoint.graphs.records import edge_change_type, maker
from forkpoint.runtime.exchange.batch import Batch, Longs
from forkpoint.runtime.exchange.grouping import group_by_key, key_column
from forkpoint.runtime.operators.base import Epoch, KeyedOperator, Outputs, TaskInfo, user_code
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation, Types

PRESENT = Types.BOOLEAN()


@dataclass(frozen=True)
class EdgesSpec(KeyedSpec):
    """Keyed by (source, target). ``removed`` and ``value`` are read from an element as keys are; without ``removed``, every
    element is an addition."""

    kind = "graph_edges"

    vertex_type: TypeInformation
    removed: KeyBy | None = None
    value: KeyBy | None = None

    @property
    def value_type(self) -> TypeInformation | None:
        return None if self.value is None else self.value.key_type

    def states(self) -> list[DeclaredState]:
        return [DeclaredState.of(ValueStateDescriptor("edges", self.value_type or PRESENT))]

    def instance(self, info: TaskInfo, state: ManagedState) -> Edges:
        return Edges(info, state.keyed, self)


class Edges(KeyedOperator):
    """Each change keeps the place and the timestamp of the element that decides it: the edge's last in the epoch."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: EdgesSpec) -> None:
        super().__init__(info, backend)
        self._spec = spec
        self._of = edge_change_type(spec.vertex_type, spec.value_type)
        self._stored = spec.value_type or PRESENT
        self._sid = backend.sid("edges")
        backend.record("value", "edges", self._stored)
        self._again = info.metrics.counter("edges_added_again")
        self._missing = info.metrics.counter("missing_edges_removed")
        self._log = ChangeLog()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        groups = group_by_key(batch, self._key)
        self._backend.begin(groups.keys, epoch.processing_time_ms, lambda: epoch.window.start)
        names = self._backend.prefixes(self._sid)
        before = self._backend.store.get_many(names)
        removed = self._removed(batch)[groups.order]
        last = groups.order[groups.starts[1:] - 1]
        self._count(removed, groups.starts, before)
        after = self._after(batch, last, removed[groups.starts[1:] - 1].tolist())
        self._log, changes = ChangeLog(), []
        rows: list[int] = []
        for key, name, old, new, row in zip(groups.keys, names, before, after, last.tolist(), strict=True):
            if old == new:
                continue
            self._log.keys.append(name)
            self._log.values.append(new)
            for removes, data in ((True, old), (False, new)):
                if data is not None:
                    changes.append((*key, removes, self._stored.decode(data)))
                    rows.append(row)
        return Outputs(self._changes(batch, changes, np.array(rows, np.int64)))

    def _removed(self, batch: Batch) -> npt.NDArray[np.bool_]:
        if self._spec.removed is None:
            return np.zeros(batch.size, dtype=bool)
        return np.array(self._read(batch, self._spec.removed), dtype=bool)

    def _read(self, batch: Batch, what: KeyBy) -> list[Any]:
        column = key_column(batch, what)
        if column is not None:
            return what.key_type.from_arrow(column)
        found: list[Any] = []
        with user_code(self._uid, lambda: batch.element(min(len(found), batch.size - 1))):
            found.extend(map(what.selector, batch.values))
        try:
            return what.key_type.accept_all(found)
        except TypeNotSupported as error:
            raise TypeNotSupported(f"operator {self._uid!r}: removed= or value= of an edge: {error}") from error

    def _after(self, batch: Batch, last: Longs, removed: list[bool]) -> list[bytes | None]:
        """What is to be stored for each edge."""
        if self._spec.value is None:
            present = PRESENT.encode(True)
            return [None if gone else present for gone in removed]
        there = [index for index, gone in enumerate(removed) if not gone]  # a removal need not have a value
        values: list[bytes | None] = [None] * len(removed)
        for index, value in zip(there, self._read(batch.take(last[there]), self._spec.value) if there else (), strict=True):
            values[index] = self._stored.encode(value)
        return values

    def _count(self, removed: npt.NDArray[np.bool_], starts: Longs, before: list[bytes | None]) -> None:
        """Count the elements that change nothing, because of the edge's element before them, or of state."""
        if len(removed):
            absent = np.roll(removed, 1)
            absent[starts[:-1]] = [data is None for data in before]
            self._missing.inc(int((removed & absent).sum()))
            if self._spec.value is None:
                self._again.inc(int((~removed & ~absent).sum()))

    def _changes(self, batch: Batch, changes: list[tuple[Any, ...]], rows: Longs) -> Batch:
        order = np.argsort(rows, kind="stable")
        positions, splits, sequence, timestamps = batch.coordinates(rows[order])
        make, fields = maker(self._of), len(self._of.members)
        values = [make(changes[index][:fields]) for index in order.tolist()]
        return Batch(len(values), positions, splits, sequence, values=values, type=self._of, timestamps=timestamps)

    def changes(self) -> ChangeLog:
        return self._log
