"""Iterations: elements fed back in an epoch become operator state at its end, and input at the start of the next epoch.

Only the end of a loop writes that state, replacing the previous epoch's list. The head reads the committed list from the
store that all stages of a subtask share. So a task may run twice, and a savepoint holds all elements in flight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forkpoint.checkpoint.states import StateInfo, state_id
from forkpoint.graph.specs import DeclaredState, LoopEnd, LoopStart
from forkpoint.runtime.exchange.batch import NO_TIMESTAMP_MS, Batch, concat, empty_batch, spread
from forkpoint.runtime.operators.base import Epoch, Outputs, StatefulOperator, TaskInfo
from forkpoint.runtime.operators.instances import ManagedState, RunnableSpec
from forkpoint.runtime.state.guard import Guard
from forkpoint.runtime.state.keyed_backend import ChangeLog
from forkpoint.state import Store, operator_key, operator_range
from forkpoint.types import Row, TypeInformation, Types

IN_FLIGHT = "in-flight"
_FIELDS = ("position", "split", "sequence", "timestamp", "element")

# Sequences of different epochs are not comparable. So each round lowers an element's split: at the same position, elements
# with more rounds come first, and elements of the same epoch keep their order.
_ROUND = 2**43
_LOWEST = -(2**62)

_REMEDY = "Make the body return values of that type, or give the iterated stream another type"


def in_flight_type(element_type: TypeInformation) -> TypeInformation:
    """An element in flight, with its order (position, split, sequence) and timestamp (ms, or None)."""
    return Types.ROW_NAMED(_FIELDS, [Types.LONG()] * 4 + [element_type])


@dataclass(frozen=True)
class IterationSpec(LoopStart, RunnableSpec):
    kind = "iteration"

    def states(self) -> list[DeclaredState]:
        return [DeclaredState(IN_FLIGHT, "operator-list", in_flight_type(self.element_type), keyed=False)]

    def instance(self, info: TaskInfo, state: ManagedState) -> IterationStart:
        return IterationStart(info, self, state.store)


class IterationStart(StatefulOperator):
    """Emits the elements that the last epoch fed back, then its input. Elements keep order and timestamp around the loop."""

    def __init__(self, info: TaskInfo, spec: IterationSpec, store: Store) -> None:
        self._type = info.operator.output_type
        self._stored = in_flight_type(spec.element_type)
        self._range = operator_range(state_id(info.operator.uid, IN_FLIGHT), info.subtask)
        self._store = store

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        rows: list[Row] = [self._stored.decode(value) for _, value in self._store.scan(*self._range)]
        if not rows:
            return Outputs(batch)
        positions, splits, sequence, timestamps, values = zip(*rows, strict=True)
        in_flight = Batch(
            len(values),
            np.array(positions, dtype=np.int64),
            np.maximum(np.array(splits, dtype=np.int64) - _ROUND, _LOWEST),
            np.array(sequence, dtype=np.int64),
            values=list(values),
            type=self._type,
            ordered=False,
            timestamps=np.array([NO_TIMESTAMP_MS if t is None else t for t in timestamps], dtype=np.int64),
        )
        return Outputs(concat([in_flight, batch] if batch.size else [in_flight], self._type).in_order())

    def changes(self) -> ChangeLog:
        return ChangeLog()

    def states(self) -> list[StateInfo]:
        return []


@dataclass(frozen=True)
class FeedbackSpec(LoopEnd, RunnableSpec):
    kind = "feedback"

    def instance(self, info: TaskInfo, state: ManagedState) -> IterationEnd:
        return IterationEnd(info, self, state.store)


class IterationEnd(StatefulOperator):
    """Stores the fed-back elements for the next epoch."""

    def __init__(self, info: TaskInfo, spec: FeedbackSpec, store: Store) -> None:
        self._uid = spec.iteration
        self._guard = Guard(spec.element_type, f"iteration {spec.iteration!r}", lambda: ", which is fed back,", _REMEDY)
        self._stored = in_flight_type(spec.element_type)
        self._sid = state_id(spec.iteration, IN_FLIGHT)
        self._subtask = info.subtask
        self._store = store
        self._log = ChangeLog()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        encoded = self._encoded(inputs[0])
        before = sum(1 for _ in self._store.scan(*operator_range(self._sid, self._subtask)))
        values: list[bytes | None] = [*encoded, *[None] * (before - len(encoded))]  # the rest is removed
        self._log = ChangeLog([operator_key(self._sid, self._subtask, i) for i in range(len(values))], values)
        return Outputs(empty_batch(None))

    def _encoded(self, batch: Batch) -> list[bytes]:
        if not batch.size:
            return []
        fields = zip(
            spread(batch.positions, batch.size).tolist(),
            spread(batch.splits, batch.size).tolist(),
            batch.sequence.tolist(),
            batch.stamps.tolist(),
            batch.values,
            strict=True,
        )
        encode, accept = self._stored.encode, self._guard.accept
        return [
            encode(Row(position, split, sequence, None if stamp == NO_TIMESTAMP_MS else stamp, accept(value)))
            for position, split, sequence, stamp, value in fields
        ]

    def changes(self) -> ChangeLog:
        return self._log

    def states(self) -> list[StateInfo]:
        return [StateInfo.of(self._uid, IN_FLIGHT, "operator-list", None, self._stored)]
