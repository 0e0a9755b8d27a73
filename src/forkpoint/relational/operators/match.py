"""MATCH_RECOGNIZE on the automaton of patterns: variables become stages, conditions and measures read the rows of a match."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, dropwhile, islice
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.graph.transformations import KeyBy
from forkpoint.patterns.conditions import ALWAYS, Atom, Condition, Either
from forkpoint.patterns.events import Asked, Emission
from forkpoint.patterns.functions import Matched as MatchedElements
from forkpoint.patterns.functions import PatternProcessFunction
from forkpoint.patterns.operator import PatternSpec
from forkpoint.patterns.pattern import Contiguity, Grouping, Pattern, Stage, Times
from forkpoint.patterns.skipping import AfterMatchSkipStrategy
from forkpoint.patterns.stored import Earlier
from forkpoint.relational.aggregation.accumulators import accumulated, needs, result
from forkpoint.relational.calls import AggregateCall, Order
from forkpoint.relational.changes import row_type
from forkpoint.relational.evaluation import evaluate, is_true
from forkpoint.relational.expressions import Column, Expression, columns_of, replace_columns
from forkpoint.relational.operators.keyed import key_by
from forkpoint.relational.plan import Match
from forkpoint.relational.row_patterns import MATCH_NUMBER, Defined, Matched, RowPattern
from forkpoint.relational.scalars import column_of, scalar, value_of

Rows = Sequence[tuple[str, Any]]
"""The rows of a match in order, each with its variable."""


def match_spec(node: Match) -> PatternSpec:
    """The operator of a MATCH_RECOGNIZE, whose input has the columns of the node's."""
    names = [field.name for field in node.input.schema]
    defined = {each.variable: _condition(each, names) for each in node.defined}
    strategy = AfterMatchSkipStrategy(node.skip, node.skip_to, bool(node.skip_to))  # type: ignore[arg-type]
    stages = tuple(_stage(part, defined) for part in node.pattern.parts)
    if node.within_ms is not None:
        stages = (*stages[:-1], replace(stages[-1], total_ms=node.within_ms))
    time, *ties = node.order or (None,)
    return PatternSpec(
        Pattern(stages, strategy),
        _measures(node, names),
        row_type(node.input.schema),
        _comparator(ties, names) if ties else None,
        event_time=not node.processing,
        query=definition_of(node),
        numbered=_is_numbered(node),
        earlier=tuple(Earlier(names.index(at), names.index(of), before) for at, of, before in node.earlier),
        time_column=time.of.name if isinstance(time, Order) and isinstance(time.of, Column) and not node.processing else "",
    )


def definition_of(node: Match) -> dict[str, Any]:
    """What the saved state depends on, and the columns of its rows. Measures are computed for each match."""
    meaning = (node.partition, node.order, node.pattern, node.defined, node.skip, node.skip_to, node.within_ms, node.processing)
    found = {"match": json.loads(msgspec.json.encode(meaning)), "columns": sorted(field.name for field in node.input.schema)}
    return {**found, "numbered": True} if _is_numbered(node) else found


def _is_numbered(node: Match) -> bool:
    return any(each.function == MATCH_NUMBER for each in node.reads)


def partition_key(node: Match) -> KeyBy:
    """The key by which the rows are distributed."""
    fields = {field.name: field.type for field in node.input.schema}
    at = tuple(map(list(fields).index, node.partition))
    return key_by(node.partition, node.partition, [fields[name] for name in node.partition], at)


# -- the pattern -------------------------------------------------------------------------------------------------------


def _stage(part: RowPattern, defined: Mapping[str, Condition]) -> Stage:
    """A part of the pattern, which comes right after the one before."""
    group = None if part.variable else Pattern(tuple(_stage(each, defined) for each in part.parts))
    condition = defined.get(part.variable, ALWAYS)
    either = part.joined == "|" and all(each.variable and each.quantifier == "" for each in part.parts)
    if either:
        condition = reduce(Either, (defined.get(each.variable, ALWAYS) for each in part.parts))
    times = None
    # The first variable of a group asks the group what may come between its rows.
    if group is not None or (part.low, part.high) not in ((1, 1), (0, 1)):
        greedy = not part.reluctant and (group is None or either) and part.high not in (1, part.low)
        times = Times(max(part.low, 1), part.high, Contiguity.STRICT, greedy)
    grouping = _GROUPINGS.get(part.joined or "", Grouping.SEQUENCE)
    return Stage(part.variable, Contiguity.STRICT, group, condition, times=times, optional=part.low == 0, grouping=grouping)


_GROUPINGS = {"|": Grouping.ONE, "PERMUTE": Grouping.ANY_ORDER}


# -- conditions --------------------------------------------------------------------------------------------------------


def _condition(defined: Defined, names: list[str]) -> Atom:
    """The condition of a variable: over columns if it reads the row alone."""
    own = ((), (defined.variable,))
    if all(each.function in ("LAST", "PREV") and not each.offset and each.variables in own for each in defined.reads):
        columns = {str(each): Column(each.column, each.type) for each in defined.reads}
        return Atom(_never_called, columns=_OverColumns(replace_columns(defined.condition, lambda c: columns[c.name])))
    readers = {str(each): _reader(each, names) for each in defined.reads}
    return Atom(
        _Reading(defined.variable, defined.condition, readers, defined.reads), iterative=True, text=str(defined.condition)
    )


@dataclass(frozen=True)
class _OverColumns:
    of: Expression

    def holds(self, elements: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        return is_true(self.of, elements)

    def __str__(self) -> str:
        return str(self.of)


class _Reading:
    """A condition that also reads rows that have matched before."""

    def __init__(
        self, variable: str, of: Expression, readers: dict[str, Callable[[Rows], Any]], reads: Sequence[Matched]
    ) -> None:
        self._variable, self._of, self._readers, self._reads = variable, of, readers, reads
        self._scalar: Callable[[dict[str, Any]], Any] | None = None

    def __call__(self, row: Any, asked: Asked) -> bool:
        if self._scalar is None:
            self._scalar = scalar(self._of, [Column(str(each), each.type) for each in self._reads])
        rows: Rows = ()
        values = {}
        for name, reader in self._readers.items():
            if isinstance(reader, _Reader):
                values[name] = reader.asked(asked, self._variable, row)
            else:
                rows = rows or [*asked.matched(), (self._variable, row)]
                values[name] = reader(rows)
        return self._scalar(values) is True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_scalar": None}


def _never_called(_: Any) -> bool:
    raise AssertionError("a condition over columns is asked of all rows at once")


# -- what is read of matches -------------------------------------------------------------------------------------------


Reader = Callable[[Rows], Any]


def _reader(read: Matched, names: list[str]) -> Reader:
    if read.call is not None:
        argument, of = read.call.argument, read.call.function
        columns = () if argument is None else tuple(columns_of(argument))
        found = _Aggregating(read.call, read.variables, tuple((names.index(each.name), each) for each in columns))
        if isinstance(argument, Column) and argument.type.is_integer and of in _OF_WHOLE_NUMBERS and not read.call.distinct:
            return _OfWholeNumbers(_OF_WHOLE_NUMBERS[of], read.variables, names.index(argument.name), found)
        return found
    column = names.index(read.column) if read.column else None
    return _Reader(read.function, read.variables, column, read.offset)


@dataclass(frozen=True)
class _Reader:
    function: str
    variables: tuple[str, ...]
    column: int | None
    offset: int

    def __call__(self, rows: Rows) -> Any:
        found = self._found(reversed(rows))
        return None if found is None else self._of(*found)

    def asked(self, asked: Asked, variable: str, row: Any) -> Any:
        """Of a partial match and its next row. Only the steps that are needed are looked at, as it is asked for each of many."""
        found = self._found(chain([(variable, None)], ((step.stage, step) for step in asked.steps())))
        if found is None:
            return None
        variable, step = found
        return self._of(variable, row if step is None else asked.element(step))

    def _found(self, last_first: Iterable[tuple[str, Any]]) -> tuple[str, Any] | None:
        wanted = self.variables
        if self.function == "PREV":
            found = dropwhile(lambda each: each[0] not in wanted, last_first) if wanted else iter(last_first)
        else:
            found = (each for each in last_first if each[0] in wanted) if wanted else iter(last_first)
        if self.function == "FIRST":
            found = reversed(list(found))
        return next(islice(found, self.offset, None), None)

    def _of(self, variable: str, row: Any) -> Any:
        return variable if self.column is None else row[self.column]


def _average(values: list[int]) -> int:
    """Rounded towards zero."""
    total = sum(values)
    return total // len(values) if total >= 0 else -(-total // len(values))


_OF_WHOLE_NUMBERS: Mapping[str, Callable[[list[int]], int]] = {"COUNT": len, "SUM": sum, "MIN": min, "MAX": max, "AVG": _average}


@dataclass(frozen=True)
class _OfWholeNumbers:
    """An aggregate of integers, of which conditions ask one row at a time. ``by_columns``: for results beyond the type."""

    function: Callable[[list[int]], int]
    variables: tuple[str, ...]
    column: int
    by_columns: _Aggregating

    def __call__(self, rows: Rows) -> Any:
        values = [row[self.column] for variable, row in rows if not self.variables or variable in self.variables]
        values = [value for value in values if value is not None]
        found = self.function(values) if values or self.function is len else None
        most = 1 << self.by_columns.call.type.arrow_type.bit_width - 1
        return found if found is None or -most <= found < most else self.by_columns(rows)


@dataclass(frozen=True)
class _Aggregating:
    call: AggregateCall
    variables: tuple[str, ...]
    columns: tuple[tuple[int, Column], ...]

    def __call__(self, rows: Rows) -> Any:
        found = [row for variable, row in rows if not self.variables or variable in self.variables]
        arrays = [column_of([row[at] for row in found], column.type) for at, column in self.columns]
        table = pa.RecordBatch.from_arrays(arrays, names=[column.name for _, column in self.columns])
        parts = []
        for accumulator in needs(self.call, updating=False):
            values = None if accumulator.input is None else evaluate(accumulator.input, table)
            none = pa.nulls(1, accumulator.type.arrow_type)
            parts.append(accumulated(accumulator, values, None, np.array([0, len(found)]), none) if found else none)
        value = value_of(result(self.call, parts), self.call.type)
        return 0 if value is None and self.call.function == "COUNT" else value


def _measures(node: Match, names: list[str]) -> PatternProcessFunction[Any, Any]:
    partition = tuple(map(names.index, node.partition))
    readers = tuple(None if each.function == MATCH_NUMBER else _reader(each, names) for each in node.reads)
    if node.all_rows:
        return _OfEachRow(partition, readers, tuple(each.final for each in node.reads), node.excluded)
    return _Measures(partition, readers)


class _Measures(PatternProcessFunction[Any, Any]):
    """Emits a row for each match: its partition, and what is read of its rows. ``readers``: None for the number of the match."""

    def __init__(self, partition: tuple[int, ...], readers: tuple[Reader | None, ...]) -> None:
        self._partition, self._readers = partition, readers

    def process_match(self, match: MatchedElements, ctx: PatternProcessFunction.Context) -> Iterable[tuple[Any, ...]]:
        assert isinstance(ctx, Emission)
        number = ctx.number
        return self._results(ctx.rows(), [reader or (lambda _: number) for reader in self._readers])

    def _results(self, rows: Rows, readers: list[Reader]) -> Iterable[tuple[Any, ...]]:
        return [(*self._key(rows), *(reader(rows) for reader in readers))]

    def _key(self, rows: Rows) -> Iterable[Any]:
        first = rows[0][1]
        return (first[at] for at in self._partition)


class _OfEachRow(_Measures):
    """Emits the rows of each match, but those of ``excluded`` variables. ``final``: which readers read the whole match, and not
    only up to the row."""

    def __init__(
        self,
        partition: tuple[int, ...],
        readers: tuple[Reader | None, ...],
        final: tuple[bool, ...],
        excluded: tuple[str, ...],
    ) -> None:
        super().__init__(partition, readers)
        self._final, self._excluded = final, excluded

    def _results(self, rows: Rows, readers: list[Reader]) -> Iterable[tuple[Any, ...]]:
        up_to_each = [rows[:end] for end in range(1, len(rows) + 1)]
        columns = [
            [reader(rows)] * len(rows) if final else list(map(reader, up_to_each))
            for reader, final in zip(readers, self._final, strict=True)
        ]
        key = tuple(self._key(rows))
        shown = zip(rows, zip(*columns, strict=True), strict=True)
        return [(*key, *values) for (variable, _), values in shown if variable not in self._excluded]


# -- ties --------------------------------------------------------------------------------------------------------------


def _comparator(order: Sequence[Order], names: list[str]) -> Callable[[Any, Any], int]:
    """Orders rows of one time."""
    keys = [(names.index(each.of.name), each.descending, each.nulls_first) for each in order if isinstance(each.of, Column)]
    return _Ties(tuple(keys))


@dataclass(frozen=True)
class _Ties:
    keys: tuple[tuple[int, bool, bool], ...]

    def __call__(self, one: Any, other: Any) -> int:
        for at, descending, nulls_first in self.keys:
            a, b = one[at], other[at]
            if a is None or b is None:
                found = (b is None) - (a is None)  # NULL first
                found = found if nulls_first else -found
            else:
                found = (a > b) - (a < b)
                found = -found if descending else found
            if found:
                return found
        return 0
