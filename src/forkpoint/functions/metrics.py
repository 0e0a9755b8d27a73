"""Metrics of user functions, as in PyFlink.

    self.bad = runtime_context.get_metrics_group().counter("bad_lines")     # in open()
    self.bad.inc()                                                          # in process_element()

Each subtask of an operator has its own metrics. Metrics are not state: a restart resets them to zero.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from forkpoint.errors import GraphError

M = TypeVar("M", bound="Metric")


class Metric:
    """Base of all metrics."""


class Counter(Metric):
    """A count that can be incremented and decremented."""

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Add ``n``."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Subtract ``n``."""
        self._count -= n

    def get_count(self) -> int:
        """The current count."""
        return self._count


class Meter(Metric):
    """The number of events, and their rate per second over the last ``time_span_in_seconds``."""

    def __init__(self, time_span_in_seconds: int = 60) -> None:
        self._span = time_span_in_seconds
        self._count = 0
        self._recent: deque[tuple[int, int]] = deque()  # (second, events in it)

    def mark_event(self, value: int = 1) -> None:
        """Record ``value`` events."""
        now = int(time.monotonic())
        self._count += value
        if self._recent and self._recent[-1][0] == now:
            value += self._recent.pop()[1]
        self._recent.append((now, value))
        while self._recent[0][0] <= now - self._span:
            self._recent.popleft()

    def get_count(self) -> int:
        """The number of events."""
        return self._count

    def get_rate(self) -> float:
        """Events per second over the time span."""
        since = int(time.monotonic()) - self._span
        return sum(events for second, events in self._recent if second > since) / self._span


class Distribution(Metric):
    """The count, sum, minimum and maximum of values."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0
        self.min: int | None = None
        self.max: int | None = None

    def update(self, value: int) -> None:
        """Record a value."""
        self.count += 1
        self.sum += value
        self.min = value if self.min is None else min(self.min, value)
        self.max = value if self.max is None else max(self.max, value)


class MetricGroup:
    """Metrics and nested groups by name. Repeated calls with a name return the same metric."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._gauges: dict[str, Callable[[], float]] = {}
        self._groups: dict[str, MetricGroup] = {}

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """The nested group ``name``; with ``extra``, the group ``extra`` in it."""
        group = self._groups.setdefault(name, MetricGroup())
        return group if extra is None else group.add_group(extra)

    def counter(self, name: str) -> Counter:
        """The counter of this name."""
        return self._metric(name, Counter, Counter)

    def gauge(self, name: str, obj: Callable[[], float]) -> None:
        """Register a gauge, whose current value ``obj()`` returns."""
        if not callable(obj):
            raise GraphError(f"gauge({name!r}) takes a function that returns a number, not {obj!r}")
        self._gauges[name] = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """The meter of this name."""
        return self._metric(name, Meter, lambda: Meter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        """The distribution of this name."""
        return self._metric(name, Distribution, Distribution)

    def values(self) -> Iterator[tuple[str, float]]:
        """All values by name, prefixed by the names of nested groups and a dot."""
        for group, name, metric in self.walk():
            name = f"{group}.{name}" if group else name
            if isinstance(metric, Counter):
                yield name, metric.get_count()
            elif isinstance(metric, Meter):
                yield f"{name}.count", metric.get_count()
                yield f"{name}.rate", metric.get_rate()
            elif isinstance(metric, Distribution):
                for part, value in vars(metric).items():
                    if value is not None:
                        yield f"{name}.{part}", value
            elif callable(metric):
                yield name, metric()

    def walk(self, group: str = "") -> Iterator[tuple[str, str, Metric | Callable[[], float]]]:
        """All metrics and gauge functions, each with its group (nested group names joined by dots) and name."""
        for name, metric in self._metrics.items():
            yield group, name, metric
        for name, obj in self._gauges.items():
            yield group, name, obj
        for name, nested in self._groups.items():
            yield from nested.walk(f"{group}.{name}" if group else name)

    def _metric(self, name: str, kind: type[M], make: Callable[[], M]) -> M:
        metric = self._metrics.get(name)
        if metric is None:
            metric = self._metrics[name] = make()
        if not isinstance(metric, kind):
            raise GraphError(f"metric {name!r} is already a {type(metric).__name__}; give each metric its own name")
        return metric
