"""Interval joins: two keyed inputs whose outputs have timestamps of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forkpoint.functions.joins import IntervalJoin
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import TaskInfo
from forkpoint.runtime.operators.co_process import KeyedCoProcess, KeyedCoProcessSpec
from forkpoint.runtime.operators.spec import ManagedState
from forkpoint.runtime.state.keyed_backend import KeyedBackend


@dataclass(frozen=True)
class IntervalJoinSpec(KeyedCoProcessSpec):
    fn: IntervalJoin

    def instance(self, info: TaskInfo, state: ManagedState) -> IntervalJoinOperator:
        return IntervalJoinOperator(info, state.keyed, self.fn)


class IntervalJoinOperator(KeyedCoProcess):
    """Runs one IntervalJoin. What an element finds comes out at its place, with the later timestamp of each pair."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, fn: IntervalJoin) -> None:
        super().__init__(info, backend, fn)
        self._join = fn

    def _stamped(self, batch: Batch) -> Batch:
        stamps, self._join.stamps = self._join.stamps, []
        batch.stamp(np.array(stamps, dtype=np.int64), None)
        return batch

    def _late_records_dropped(self) -> int:
        dropped, self._join.dropped = self._join.dropped, 0
        return dropped
