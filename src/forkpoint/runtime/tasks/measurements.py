"""Measurements of a task's operators: working time and user metrics."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from forkpoint.functions import Counter, Distribution, Meter, MetricGroup
from forkpoint.runtime.exchange.control import MetricKind, UserMetric
from forkpoint.runtime.operators.base import NOT_USERS

log = logging.getLogger("forkpoint")

_LARGEST = 2**63 - 1  # of an integer in a report


class Stopwatch:
    """Divides a task's time among its operators, batch by batch. ``uid``: the operator that is currently working."""

    __slots__ = ("_since", "seconds", "uid")

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.uid: str | None = None
        self._since = 0.0

    def switch(self, uid: str | None) -> str | None:
        """Count the time from now on for this operator, or for none. Returns the previous operator."""
        now, before = time.perf_counter(), self.uid
        if before is not None:
            self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self.uid, self._since = uid, now
        return before


@dataclass(frozen=True, slots=True)
class _Reported:
    """The totals that a metric has reported."""

    count: float = 0
    sum: float = 0


_NOTHING = _Reported()


class MetricReporter:
    """Reports the changes of an operator's user metrics. So a subtask may run in any process, and the driver adds only the
    changes of accepted attempts."""

    def __init__(self, uid: str, group: MetricGroup) -> None:
        self._uid = uid
        self._group = group
        self._reported: dict[tuple[str, str], _Reported] = {}
        self._failing: set[tuple[str, str]] = set()

    def skip(self) -> None:
        """Drop the changes since the last report, which are from an attempt that was not accepted."""
        for group, name, metric in self._group.walk():
            if (change := _change(metric)) is not None:
                self._reported[group, name] = change[1]

    def take(self) -> list[UserMetric]:
        """The changes since the last report, and the values of gauges."""
        return [change for metric in self._group.walk() if (change := self._take(*metric)) is not None]

    def _take(self, group: str, name: str, metric: Any) -> UserMetric | None:
        change = _change(metric)
        if change is None:
            value = self._value(group, name, metric)
            return None if value is None else UserMetric("gauge", group, name, value)
        kind, now = change
        before = self._reported.get((group, name), _NOTHING)
        if now == before:
            return None
        self._reported[group, name] = now
        count, total = _number(now.count - before.count), _number(now.sum - before.sum)
        if count is None or total is None:
            return None
        if isinstance(metric, Distribution):
            return UserMetric(kind, group, name, count, total, _number(metric.min), _number(metric.max))
        return UserMetric(kind, group, name, count)

    def _value(self, group: str, name: str, gauge: Callable[[], Any]) -> int | float | None:
        try:
            value = _number(gauge())
        except NOT_USERS:
            raise
        except BaseException:
            if (group, name) not in self._failing:
                self._failing.add((group, name))
                log.warning("operator %r: gauge %r has no value: its function failed", self._uid, name, exc_info=True)
            return None
        self._failing.discard((group, name))
        return value


def _change(metric: Any) -> tuple[MetricKind, _Reported] | None:
    """A metric's totals; None for a gauge."""
    if isinstance(metric, Counter):
        return "counter", _Reported(metric.get_count())
    if isinstance(metric, Meter):
        return "meter", _Reported(metric.get_count())
    if isinstance(metric, Distribution):
        return "distribution", _Reported(metric.count, metric.sum)
    return None


def _number(value: Any) -> int | float | None:
    """A number as an int or float that fits a report; None for other values, NaN and infinity."""
    if isinstance(value, int) and -_LARGEST <= value <= _LARGEST:
        return int(value)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
