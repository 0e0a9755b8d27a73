"""SQL's aggregate functions: their types, the accumulators that they need, and their results.

Accumulators are the columns of a group's state, named for people: ``count``, ``sum_v``. Calls share them: ``AVG(v)`` needs what
``SUM(v)`` has. Aggregates over distinct values, and ``MIN`` and ``MAX`` of rows that are also removed, need the values of each
group besides (``operators.multisets``).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from forkpoint.errors import JobFailed
from forkpoint.relational.aggregation import collected, kept, moments, ordered
from forkpoint.relational.aggregation.sums import with_added
from forkpoint.relational.aggregation.user import Aggregator
from forkpoint.relational.calls import AggregateCall
from forkpoint.relational.digits import MOST, OF_INTEGERS, adjusted, of_quotient
from forkpoint.relational.expressions import Call, Column, Expression
from forkpoint.relational.expressions import Literal as LiteralExpression
from forkpoint.relational.functions import cast
from forkpoint.relational.functions.decimals import OPERATORS
from forkpoint.relational.functions.user import known_function, without_versions
from forkpoint.relational.plan import Aggregate, is_updating
from forkpoint.relational.types import BIGINT, DOUBLE, INTERVALS, STRING, SqlType, array_type, decimal_type, digits_of

Kind = Literal["count", "sum", "min", "max", "first", "last", "list", "kept", "user", "merge"]
Longs = npt.NDArray[np.int64]
_NEVER_NULL = BIGINT.with_null(False)


def _of_argument(argument: SqlType | None) -> SqlType | str:
    if argument is None or argument.is_nested or argument.name in ("BOOLEAN", "BYTES", *INTERVALS):
        return f"takes numbers, text and times, not {'*' if argument is None else argument.name}"
    return argument.with_null()


def _any_argument(argument: SqlType | None) -> SqlType | str:
    return "takes a column, not *" if argument is None else argument.with_null()


def _text(argument: SqlType | None) -> SqlType | str:
    if argument is None or argument.name not in ("STRING", "NULL"):
        return f"takes text, not {'*' if argument is None else argument.name}"
    return STRING


def _number(argument: SqlType | None) -> SqlType | str:
    if argument is None or not argument.is_number:
        return f"takes a number, not {'*' if argument is None else argument.name}"
    return argument.with_null()


def _sum(argument: SqlType | None) -> SqlType | str:
    found = _number(argument)
    return found if isinstance(found, str) or found.name != "DECIMAL" else decimal_type((MOST, digits_of(found)[1]))


def _average(argument: SqlType | None) -> SqlType | str:
    found = _sum(argument)
    if isinstance(found, str) or found.name != "DECIMAL":
        return found
    return decimal_type(adjusted(*of_quotient(digits_of(found), OF_INTEGERS["BIGINT"])))


AGGREGATES: Mapping[str, Callable[[SqlType | None], SqlType | str]] = {
    "COUNT": lambda argument: _NEVER_NULL,
    "SUM": _sum,
    "AVG": _average,
    "MIN": _of_argument,
    "MAX": _of_argument,
    **dict.fromkeys(moments.FUNCTIONS, _average),
    "FIRST_VALUE": _any_argument,
    "LAST_VALUE": _any_argument,
    "LISTAGG": _text,
    **collected.FUNCTIONS,
}
"""The type of each function's result for its argument (None: ``*``); a text says why there is none."""


@dataclass(frozen=True)
class Accumulator:
    """A column of the state. ``input``: the expression that it accumulates; None for the number of rows. ``values``: the name of
    the values of each group that it needs: those that a group gains or loses are then what it accumulates. ``function``: the
    user's, by identity; its input is the ROW of its arguments."""

    name: str
    kind: Kind
    input: Expression | None
    type: SqlType
    values: str | None = None
    function: str = ""

    @property
    def column(self) -> str:
        """The name of the column with its input."""
        return self.values or self.name


ROWS = Accumulator("count", "count", None, _NEVER_NULL)
"""Each group has it: without rows there is no group."""


def accumulators_of(aggregate: Aggregate) -> tuple[Accumulator, ...]:
    """All accumulators that the calls need, the number of rows first, the others by name."""
    updating = is_updating(aggregate.input)
    found = {needed.name: needed for call in aggregate.calls for needed in needs(call, updating=updating)}
    found.pop(ROWS.name, None)
    return (ROWS, *(found[name] for name in sorted(found)))


def needs(call: AggregateCall, *, updating: bool) -> list[Accumulator]:
    """The accumulators of one call. ``updating``: whether rows are also removed."""
    if call.function in ("MIN", "MAX"):
        assert call.argument is not None
        kind: Kind = "min" if call.function == "MIN" else "max"
        return [_accumulator(kind, call, call.argument.type.with_null(), with_values=updating)]
    if call.accumulator is not msgspec.UNSET:
        found = _accumulator("user", call, call.accumulator, with_values=call.distinct)
        return [dataclasses.replace(found, name=_readable(str(call)), function=call.function)]
    if collected.is_collected(call.function):
        assert call.argument is not None
        return [_accumulator("kept", call, array_type(call.argument.type))]
    if call.function in ordered.FUNCTIONS and updating:
        return [_accumulator("kept", call, array_type(call.type))]
    if call.function in ordered.FUNCTIONS:
        return [_accumulator(ordered.FUNCTIONS[call.function], call, call.type)]
    counted = [_count(call)]
    if call.function in ("SUM", "AVG", *moments.FUNCTIONS):
        counted.append(_sum_of(call))
    if call.function in moments.FUNCTIONS:
        assert call.argument is not None
        counted.append(_sum_of(replace(call, argument=moments.square(call.argument))))
    return counted


def _sum_of(call: AggregateCall) -> Accumulator:
    assert call.argument is not None
    return _accumulator("sum", call, _total(call.argument.type).with_null(False), with_values=call.distinct)


def _total(argument: SqlType) -> SqlType:
    """The type in which numbers are added."""
    if argument.name == "DECIMAL":
        return decimal_type((MOST, digits_of(argument)[1]))
    return DOUBLE if argument.name in ("FLOAT", "DOUBLE") else BIGINT


def _count(call: AggregateCall) -> Accumulator:
    if call.condition is None and not call.distinct and (call.argument is None or not call.argument.type.nullable):
        return ROWS
    return _accumulator("count", call, _NEVER_NULL, with_values=call.distinct)


def _accumulator(kind: Kind, call: AggregateCall, of: SqlType, *, with_values: bool = False) -> Accumulator:
    argument = LiteralExpression(True, SqlType("BOOLEAN", nullable=False)) if call.argument is None else call.argument
    if call.condition is not None:
        null = LiteralExpression(None, SqlType("NULL"))
        argument = Call("CASE", (call.condition, argument, null), argument.type.with_null())
    name = readable_name(argument)
    words = f"{kind}_distinct" if call.distinct and kind in ("count", "sum") else kind
    return Accumulator(f"{words}_{name}", kind, argument, of, f"values_{name}" if with_values else None)


def filtered_value(of: Expression) -> Expression | None:
    """The argument of a call with FILTER, whose accumulator has the input ``of``; None if that is not of such a call."""
    match of:
        case Call("CASE", (_, argument, LiteralExpression(None))):
            return argument
    return None


def listed(text: Expression, separator: str) -> Expression:
    """What LISTAGG accumulates: each text after a separator."""
    literal = LiteralExpression(separator, STRING.with_null(False))
    return Call("||", (literal, text), STRING.with_null(text.type.nullable))


def separator_of(call: AggregateCall) -> str:
    assert isinstance(call.argument, Call)
    (literal, _) = call.argument.arguments
    assert isinstance(literal, LiteralExpression)
    return str(literal.value)


def readable_name(expression: Expression) -> str:
    """A name for a column of state: the column's own name, or words of the expression with a digest of its text."""
    return _name_of(expression, str(expression))


def key_label(expression: Expression) -> str:
    """As ``readable_name``, of a key: it and the operator's uid stay when a user's function in it has another version."""
    return _name_of(expression, without_versions(str(expression)))


def _name_of(expression: Expression, text: str) -> str:
    text = text.removeprefix("by ").removeprefix("$")  # the key of a subquery, or a window's column
    if isinstance(expression, Column) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        return text
    return _readable(text)


def _readable(text: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:40]
    return f"{words}_{blake2b(text.encode(), digest_size=3).hexdigest()}"


# -- columns -----------------------------------------------------------------------------------------------------------


def accumulated(
    accumulator: Accumulator, values: pa.Array | None, weights: Longs | None, starts: Longs, saved: pa.Array
) -> pa.Array:
    """The accumulator of each group with its rows added, or taken back where the weight is negative.

    ``values``, ``weights`` (None: all 1): one entry per row, group i has the rows from ``starts[i]`` to ``starts[i + 1]``.
    ``saved``: one entry per group, null for a new one.
    """
    size = int(starts[-1])
    if accumulator.kind in ("min", "max"):
        assert values is not None
        return _extreme(accumulator.kind, values, starts, saved)
    if accumulator.kind == "merge" and not accumulator.function:
        assert values is not None
        return kept.merged(accumulator.type, values, starts)
    if accumulator.kind in ("user", "merge"):
        assert values is not None
        assert accumulator.input is not None
        function: Aggregator = known_function(accumulator.function)
        if accumulator.kind == "merge":
            return function.merged(accumulator.type, values, starts)
        types = [field.type for field in accumulator.input.type.fields]
        return function.accumulated(accumulator.type, types, values, weights, starts, saved)
    if accumulator.kind == "kept":
        assert values is not None
        return kept.with_values(accumulator.type, saved, values, weights, starts)
    if accumulator.kind in ("first", "last", "list"):
        assert values is not None
        return ordered.of_rows(accumulator.kind, values, starts, saved)
    ones = np.ones(size, np.int64) if weights is None else weights
    if pa.types.is_decimal(saved.type):
        assert values is not None
        return decimal_sums(accumulator, saved, np.repeat(np.arange(len(saved)), np.diff(starts)), values, ones)
    before = saved.fill_null(0).to_numpy(zero_copy_only=False)
    if accumulator.kind == "count":
        present = ones if values is None else ones * values.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(before + np.add.reduceat(present, starts[:-1]), pa.int64())
    assert values is not None
    if accumulator.type.name == "DOUBLE":
        numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        groups = np.repeat(np.arange(len(before)), np.diff(starts))
        # bincount adds one by one, in order, so that the result does not depend on where an epoch ends.
        rows = numbers if weights is None else numbers * weights
        sums = np.bincount(np.append(np.arange(len(before)), groups), np.append(before, rows), len(before))
        return pa.array(sums, pa.float64())
    numbers = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    _check_bounds(accumulator, numbers, ones, starts, before)
    return pa.array(before + np.add.reduceat(numbers * ones, starts[:-1]), pa.int64())


def of_each(accumulator: Accumulator, values: pa.Array | None, rows: int) -> pa.Array:
    """The accumulators of so many single rows. Of one that `adds_parts`."""
    if values is None:
        return pa.repeat(pa.scalar(1, pa.int64()), rows)
    if accumulator.kind == "count":
        return values.is_valid().cast(pa.int64())
    cast = values.cast(accumulator.type.arrow_type)
    return cast.fill_null(0) if accumulator.kind == "sum" else cast


_MERGING: dict[Kind, Kind] = {"count": "sum", "user": "merge", "kept": "merge"}


def merging(accumulator: Accumulator) -> Accumulator:
    """What accumulates accumulators of this kind."""
    return dataclasses.replace(accumulator, kind=_MERGING.get(accumulator.kind, accumulator.kind))


def part_of(accumulator: Accumulator) -> Accumulator:
    """The accumulator of some rows, with a name that no key has."""
    return dataclasses.replace(accumulator, name=f"$part {accumulator.name}")


def adds_parts(accumulator: Accumulator) -> bool:
    """Whether accumulators of parts of the rows, in any order, become exactly that of all rows, whoever else needs them."""
    if accumulator.values is not None or accumulator.kind not in ("count", "sum", "min", "max"):
        return False
    return accumulator.kind != "sum" or accumulator.type.name != "DOUBLE"


def decimal_sums(accumulator: Accumulator, saved: pa.Array, groups: Longs, values: pa.Array, weights: Longs) -> pa.Array:
    """The sums of groups with these values added. Raises JobFailed if one has more than 38 digits."""
    try:
        return with_added(saved, groups, values, weights)
    except pa.ArrowInvalid as error:
        raise JobFailed(f"SUM({accumulator.input}) exceeds {accumulator.type.label}: {error}") from error


def _check_bounds(accumulator: Accumulator, numbers: Longs, weights: Longs, starts: Longs, before: Longs) -> None:
    """Raise JobFailed if a sum leaves 64 bits."""
    if _most(before) + _most(numbers) * _most(weights) * len(numbers) < 2**62:
        return
    estimate = np.add.reduceat(np.abs(numbers.astype(np.float64) * weights), starts[:-1]) + np.abs(before.astype(np.float64))
    for group in np.flatnonzero(estimate >= 2.0**62).tolist():
        rows = slice(starts[group], starts[group + 1])
        exact = int(before[group]) + sum(map(int.__mul__, numbers[rows].tolist(), weights[rows].tolist()))
        if not -(2**63) <= exact < 2**63:
            raise JobFailed(f"SUM({accumulator.input}) is {exact}, which exceeds BIGINT; CAST the argument AS DOUBLE")


def _most(numbers: Longs) -> int:
    """The largest absolute value."""
    return max(int(numbers.max(initial=0)), -int(numbers.min(initial=0)))


def _extreme(kind: Kind, values: pa.Array, starts: Longs, saved: pa.Array) -> pa.Array:
    groups = pa.array(np.repeat(np.arange(len(starts) - 1), np.diff(starts)))
    found = pa.table({"group": groups, "value": values}).group_by("group", use_threads=False).aggregate([("value", kind)])
    new = found.sort_by("group").column(f"value_{kind}").combine_chunks().cast(saved.type)
    return better(kind, saved, new)


def better(kind: Kind, one: pa.Array, other: pa.Array) -> pa.Array:
    """The lesser or greater of two columns' values; NULL is neither."""
    least = pc.min_element_wise if kind == "min" else pc.max_element_wise
    if pa.types.is_timestamp(one.type) and one.type.tz is not None:  # for which Arrow has no kernel
        plain = pa.timestamp(one.type.unit)
        return least(one.cast(plain), other.cast(plain), skip_nulls=True).cast(one.type)
    return least(one, other, skip_nulls=True)


def result(call: AggregateCall, found: Sequence[pa.Array]) -> pa.Array:
    """The call's results, from the accumulators that it needs, in their order."""
    arrow = call.type.arrow_type
    if call.accumulator is not msgspec.UNSET:
        function: Aggregator = known_function(call.function)
        return function.results(call, found[0])
    if collected.is_collected(call.function):
        try:
            return collected.result(call.function, call.type, found[0], distinct=call.distinct)
        except ValueError as error:
            raise JobFailed(f"{call}: {error}") from error
    of_kept = bool(found) and found[0].type == pa.list_(arrow)  # of rows that are also removed
    if call.function == "LISTAGG":
        return pc.utf8_slice_codeunits(kept.joined(found[0]) if of_kept else found[0], len(separator_of(call)))
    if of_kept:
        return kept.at_end(found[0], first=call.function == "FIRST_VALUE")
    if len(found) == 1:
        return found[0].cast(arrow)
    if call.function in moments.FUNCTIONS:
        number = moments.moment(call.function, *found)
        return cast(number, call.type, failing_null=False)
    count, total = found
    empty = pc.equal(count, 0)
    counted = pc.if_else(empty, 1, count)
    if call.function == "SUM":
        number = total
    elif pa.types.is_decimal(total.type):
        number = OPERATORS["/"](total, counted)
    else:
        number = pc.divide(total, counted.cast(total.type))
    try:
        return pc.if_else(empty, pa.scalar(None, arrow), number.cast(arrow, safe=not pa.types.is_floating(arrow)))
    except pa.ArrowInvalid as error:
        raise JobFailed(
            f"{call} exceeds {call.type.name}, the type of its argument; CAST the argument AS BIGINT: {error}"
        ) from error
