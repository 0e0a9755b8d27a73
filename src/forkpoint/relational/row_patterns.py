"""Patterns of rows, as MATCH_RECOGNIZE has them: parts of its node of the plan. Frozen, and JSON when stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from forkpoint.relational.calls import AggregateCall
from forkpoint.relational.expressions import Expression
from forkpoint.relational.types import SqlType

MATCH_ROWTIME, MATCH_NUMBER = "MATCH_ROWTIME", "MATCH_NUMBER"


class RowPattern(msgspec.Struct, frozen=True):
    """A variable, or the ``parts`` of a group, which follow each other without rows in between; ``low`` to ``high`` times (None:
    any number), as often as possible unless ``reluctant``. ``joined``: the parts are alternatives (|), or come in any order."""

    variable: str = ""
    parts: tuple[RowPattern, ...] = ()
    low: int = 1
    high: int | None = 1
    reluctant: bool = False
    joined: Literal["|", "PERMUTE"] | msgspec.UnsetType = msgspec.UNSET

    def __str__(self) -> str:
        between = {"|": " | ", "PERMUTE": ", "}.get(self.joined or "", " ")
        of = self.variable or f"{'PERMUTE' * (self.joined == 'PERMUTE')}({between.join(map(str, self.parts))})"
        return f"{of}{self.quantifier}"

    @property
    def quantifier(self) -> str:
        if (self.low, self.high) == (1, 1):
            return ""
        short = {(0, 1): "?", (0, None): "*", (1, None): "+"}.get((self.low, self.high))
        text = short or (
            f"{{{self.low}}}" if self.low == self.high else f"{{{self.low},{'' if self.high is None else self.high}}}"
        )
        return text + "?" * self.reluctant

    @property
    def may_lack(self) -> bool:
        """Whether its parts, or a match, may have no rows of it."""
        of_all = any if self.joined == "|" else all
        return not self.low or (bool(self.parts) and of_all(each.may_lack for each in self.parts))

    @property
    def fewest(self) -> int:
        """How many rows it has at least."""
        of_all = min if self.joined == "|" else sum
        return self.low * (1 if self.variable else of_all(each.fewest for each in self.parts))

    def ends(self) -> Iterator[RowPattern]:
        """It, and the parts in it of which the last row may be."""
        yield self
        for part in reversed(self.parts):
            yield from part.ends()
            if not self.joined and not part.may_lack:
                return

    def before(self, variable: str) -> int | None:
        """How many rows a match has at least before one of the variable; None if there is none of it."""
        if self.variable:
            return 0 if self.variable == variable else None
        rows, found = 0, []
        for part in self.parts:
            before = part.before(variable)
            found += [] if before is None else [rows + before]
            rows += 0 if self.joined else part.fewest
        return min(found, default=None)

    def groups(self) -> Iterator[RowPattern]:
        """The groups in it."""
        for part in self.parts:
            if part.parts:
                yield part
                yield from part.groups()

    def variables(self) -> Iterator[str]:
        if self.variable:
            yield self.variable
        for part in self.parts:
            yield from part.variables()


class Matched(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is read of the rows of a match that are mapped to one of the ``variables`` (none: all rows). FIRST and LAST: a column
    of the row that is ``offset`` after the first, or before the last. PREV: of the row that comes ``offset`` before the last one,
    whatever variable it is mapped to. AGGREGATE: ``call`` over these rows. CLASSIFIER: the variable of the last row.
    MATCH_ROWTIME: its event time. MATCH_NUMBER: the number of the match in its partition, from 1. ROW: a column of the row
    itself.

    In a result with all rows of a match, a row's reads end with it, unless they are ``final``."""

    function: str
    variables: tuple[str, ...]
    type: SqlType
    column: str = ""
    offset: int = 0
    call: AggregateCall | None = None
    final: bool = False

    def __str__(self) -> str:
        return f"{'FINAL ' * self.final}{self._text}"

    @property
    def _text(self) -> str:
        of = "|".join(self.variables)
        if self.call is not None:
            return f"{self.call}{' of ' * bool(of)}{of}"
        column = f"{of}.{self.column}" if of and self.column else of + self.column
        return f"{self.function}({column}{f', {self.offset}' * bool(self.offset)})"


class Defined(msgspec.Struct, frozen=True):
    """What a row must be to be mapped to a variable. ``condition`` is over ``reads``, by their texts: the row itself is the last
    one of its variable."""

    variable: str
    condition: Expression
    reads: tuple[Matched, ...]
