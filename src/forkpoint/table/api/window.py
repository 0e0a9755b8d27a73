"""Windows of a table by PyFlink's names: groups of event time, and the rows around a row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from forkpoint.errors import ConfigError
from forkpoint.table.api.expression import Expression, node_of
from forkpoint.table.api.nodes import Distance, Interval, Node, Writer


@dataclass(frozen=True)
class GroupWindow:
    """Windows for ``Table.window``. ``function``: of SQL. ``intervals``: its arguments after the time, which may be numbers of
    rows."""

    function: str
    intervals: tuple[Node, ...]
    time: Node
    name: str

    @property
    def rows(self) -> tuple[int, ...]:
        """Every how many rows a window begins, and how many it has; empty if windows have no number of rows."""
        numbers = [int(each.text) if each.text.isdigit() else 0 for each in self.intervals if isinstance(each, Distance)]
        if numbers and (self.function == "SESSION" or len(numbers) < len(self.intervals) or min(numbers) < 1):
            slide = "Slide.over(row_interval(n)).every(row_interval(m))"
            raise ConfigError(f"windows of a number of rows, which is positive, are Tumble.over(row_interval(n)) or {slide}")
        return (numbers[0], numbers[-1]) if numbers else ()

    def arguments(self) -> str:
        """The arguments of the window's function."""
        return ", ".join(map(Writer().text, (self.time, *self.intervals)))


@dataclass(frozen=True)
class _Timed:
    _function: str
    _intervals: tuple[Node, ...]
    _time: Node

    def alias(self, alias: str) -> GroupWindow:
        """The windows under a name, for ``group_by(col(name))`` and ``col(name).start``."""
        return GroupWindow(self._function, self._intervals, self._time, alias)


@dataclass(frozen=True)
class _Sized:
    _function: str
    _intervals: tuple[Node, ...]

    def on(self, time_field: Expression) -> _Timed:
        """The column that is event time."""
        return _Timed(self._function, self._intervals, node_of(time_field))


@dataclass(frozen=True)
class _Sliding:
    _size: Node

    def every(self, slide: Expression) -> _Sized:
        """The time from the start of one window to that of the next."""
        return _Sized("HOP", (node_of(slide), self._size))


class Tumble:
    """Windows of one size, one after the other: ``Tumble.over(lit(10).minutes).on(col("ts")).alias("w")``."""

    @staticmethod
    def over(size: Expression) -> _Sized:
        """The size of the windows."""
        return _Sized("TUMBLE", (node_of(size),))


class Slide:
    """Windows that overlap: ``Slide.over(lit(10).minutes).every(lit(5).minutes).on(col("ts")).alias("w")``."""

    @staticmethod
    def over(size: Expression) -> _Sliding:
        """The size of the windows."""
        return _Sliding(node_of(size))


class Session:
    """Windows that end where no row comes for a time: ``Session.with_gap(lit(10).minutes).on(col("ts")).alias("w")``."""

    @staticmethod
    def with_gap(gap: Expression) -> _Sized:
        """The time without rows that ends a window."""
        return _Sized("SESSION", (node_of(gap),))


@dataclass(frozen=True)
class OverWindow:
    """The rows that an aggregate with ``over`` reads, for ``Table.over_window``."""

    partition: tuple[Node, ...]
    order: Node
    before: Node | None
    after: Node | None
    name: str

    def text(self, writer: Writer) -> str:
        """What follows OVER in SQL."""
        partition = f"PARTITION BY {', '.join(map(writer.text, self.partition))} " if self.partition else ""
        order = f"{partition}ORDER BY {writer.text(self.order)}"
        if self.before is None:
            return order
        unit = self.before.unit if isinstance(self.before, Distance) else "RANGE"
        before = _distance(self.before, "PRECEDING")
        after = "CURRENT ROW" if self.after is None else _distance(self.after, "FOLLOWING")
        return f"{order} {unit} BETWEEN {before} AND {after}"


def _distance(node: Node, side: str) -> str:
    match node:
        case Distance(text="CURRENT ROW"):
            return "CURRENT ROW"
        case Distance(text=text):
            return f"{text} {side}"
        case Interval():
            return f"{Writer().text(node)} {side}"
    raise ConfigError(
        "an over window begins an interval, row_interval(n), UNBOUNDED_ROW or UNBOUNDED_RANGE before the row, and ends as far "
        "after it or at CURRENT_ROW or CURRENT_RANGE"
    )


@dataclass(frozen=True)
class _Ordered:
    _window: OverWindow

    def preceding(self, preceding: Any) -> _Ordered:
        """How far before the row the window begins."""
        return _Ordered(replace(self._window, before=node_of(preceding)))

    def following(self, following: Any) -> _Ordered:
        """How far after the row the window ends; by default at the row."""
        return _Ordered(replace(self._window, after=node_of(following)))

    def alias(self, alias: str) -> OverWindow:
        """The window under a name, for ``over(col(name))``."""
        return replace(self._window, name=alias)


@dataclass(frozen=True)
class _Partitioned:
    _partition: tuple[Node, ...]

    def order_by(self, order_by: Expression) -> _Ordered:
        """The order of a partition's rows."""
        return _Ordered(OverWindow(self._partition, node_of(order_by), None, None, ""))


class Over:
    """The rows around a row: ``Over.partition_by(col("a")).order_by(col("ts")).preceding(row_interval(2)).alias("w")``."""

    @staticmethod
    def partition_by(*partition_by: Expression) -> _Partitioned:
        """The columns whose values the rows have in common."""
        return _Partitioned(tuple(map(node_of, partition_by)))

    @staticmethod
    def order_by(order_by: Expression) -> _Ordered:
        """The order of all rows."""
        return _Partitioned(()).order_by(order_by)
