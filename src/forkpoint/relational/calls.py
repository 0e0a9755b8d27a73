"""Calls of aggregates and of OVER, and what they are ordered by: parts of plans. Frozen, and JSON when stored."""

from __future__ import annotations

from typing import Literal

import msgspec

from forkpoint.relational.expressions import Expression
from forkpoint.relational.types import SqlType


class AggregateCall(msgspec.Struct, frozen=True):
    """An aggregate function over the rows of a group. ``argument`` is None for ``COUNT(*)``. ``condition``: FILTER.
    ``accumulator``: the type of a user's function's, whose argument is the ROW of its arguments."""

    function: str
    argument: Expression | None
    condition: Expression | None
    type: SqlType
    distinct: bool = False
    accumulator: SqlType | msgspec.UnsetType = msgspec.UNSET

    def __str__(self) -> str:
        argument = "*" if self.argument is None else str(self.argument)
        if self.accumulator is not msgspec.UNSET:
            argument = argument.removeprefix("ROW(").removesuffix(")")
        text = f"{self.function}({'DISTINCT ' if self.distinct else ''}{argument})"
        return text if self.condition is None else f"{text} FILTER (WHERE {self.condition})"


class Order(msgspec.Struct, frozen=True):
    of: Expression
    descending: bool
    nulls_first: bool

    def __str__(self) -> str:
        return f"{self.of} {'DESC' if self.descending else 'ASC'} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


class Frame(msgspec.Struct, frozen=True):
    """The rows that an aggregate with OVER reads: from ``before`` rows before the current one to ``after`` rows after it (None:
    all). ``unit``: RANGE counts in what the rows are ordered by, intervals in microseconds, and includes rows of equal order."""

    unit: Literal["ROWS", "RANGE"]
    before: int | None
    after: int | None

    def __str__(self) -> str:
        before, after = ("UNBOUNDED" if each is None else str(each) for each in (self.before, self.after))
        return f"{self.unit} BETWEEN {before} PRECEDING AND {after} FOLLOWING"


class OverCall(msgspec.Struct, frozen=True):
    """A function of a row and of others of its partition. ``frame``: of an aggregate. ``accumulator``: as of AggregateCall."""

    function: str
    arguments: tuple[Expression, ...]
    type: SqlType
    frame: Frame | None = None
    accumulator: SqlType | msgspec.UnsetType = msgspec.UNSET

    def __str__(self) -> str:
        text = f"{self.function}({', '.join(map(str, self.arguments))})"
        return text if self.frame is None else f"{text} {self.frame}"
