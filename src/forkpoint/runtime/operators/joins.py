"""Interval joins: functions of two keyed inputs that set their outputs' timestamps."""

from __future__ import annotations

from dataclasses import dataclass

from forkpoint.functions.joins import IntervalJoin
from forkpoint.runtime.operators.base import TaskInfo
from forkpoint.runtime.operators.co_process import KeyedCoProcess, KeyedCoProcessSpec
from forkpoint.runtime.operators.keyed_process import TimestampedProcess
from forkpoint.runtime.operators.spec import ManagedState


@dataclass(frozen=True)
class IntervalJoinSpec(KeyedCoProcessSpec):
    fn: IntervalJoin

    def instance(self, info: TaskInfo, state: ManagedState) -> IntervalJoinOperator:
        return IntervalJoinOperator(info, state.keyed, self.fn)


class IntervalJoinOperator(TimestampedProcess, KeyedCoProcess):
    """Runs one IntervalJoin. An element's pairs take its place, each with the later timestamp of the two."""
