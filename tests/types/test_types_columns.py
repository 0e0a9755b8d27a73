"""Columns and bytes at their edges: nulls, casts, ranges, time zones, and what the errors say."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from forkpoint.errors import TypeNotSupported
from forkpoint.types import Instant, Types, type_of
from forkpoint.types.keys import key_form

NAIVE = dt.datetime(2020, 1, 1)  # noqa: DTZ001
PARIS = dt.timezone(dt.timedelta(hours=1))


@pytest.mark.parametrize(
    ("annotation", "values", "said"),
    [
        (int, [1, 2**63], r"9223372036854775808 .*BIG_INT"),
        (int, [1, -(2**70)], "BIG_INT"),
        (int, [1, 1.5], r"1\.5"),
        (int, [1, None], "None .*Optional"),
        (str, ["a", None], "None .*Optional"),
        (str, ["a", 1], "1 is not a value of STRING"),
        (list[int], [[1], [None]], "None .*Optional"),
        (list[int], [[1], None], "None"),
        (dict[str, int], [{"a": None}], "None .*Optional"),
        (tuple[int, str], [(1, "a"), None], "None"),
        (bool, [1], "BOOLEAN"),
        (float, ["x"], "'x'"),
        (dt.date, [NAIVE], "SQL_TIMESTAMP"),
        (dt.datetime, [NAIVE.replace(tzinfo=dt.UTC)], "aware .*Instant"),
        (Instant, [NAIVE], "naive .*annotate the field datetime"),
        (dt.timedelta, [dt.timedelta.max], "999999999 days|timedelta"),
        (Types.BYTE(), [128], "128"),
        (Types.FLOAT(), [1e300], "DOUBLE"),
        (Decimal, ["1.5"], "Decimal"),
        (Types.BIG_INT(), ["15"], "'15'"),
    ],
)
def test_values_that_do_not_fit_a_column(annotation: Any, values: list[Any], said: str) -> None:
    with pytest.raises(TypeNotSupported, match=said):
        type_of(annotation).to_columns(values)


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        (int, 2**64, r"18446744073709551616 .*BIG_INT"),
        (tuple[int, int], (1, -(2**64)), "BIG_INT"),
        (set[int], {1, "a"}, "'<' not supported"),
        (int, 1j, "complex"),
        (Types.SHORT(), 40000, "40000 does not fit into SHORT"),
        (dt.datetime, NAIVE.replace(tzinfo=dt.UTC), "aware"),
        (Instant, NAIVE, "naive"),
        (list[dt.datetime], 5, "5 is not a value of"),
    ],
)
def test_values_that_encode_refuses(annotation: Any, value: Any, said: str) -> None:
    of = type_of(annotation)
    with pytest.raises((TypeNotSupported, OverflowError, TypeError)) as caught:
        of.encode(value)
    with pytest.raises(TypeNotSupported, match=said):
        raise of.encode_error(value, caught.value)


def test_nulls_are_refused_unless_optional() -> None:
    column = pa.array([1, None, 3])
    with pytest.raises(TypeNotSupported, match="1 nulls"):
        type_of(int).from_arrow(column)
    assert type_of(int | None).from_arrow(column) == [1, None, 3]
    structs = pa.array([{"a": 1, "b": [None]}, None, {"a": None, "b": None}])

    class Pair(NamedTuple):
        a: int | None
        b: list[int | None] | None

    assert type_of(Pair | None).from_arrow(structs) == [Pair(1, [None]), None, Pair(None, None)]
    with pytest.raises(TypeNotSupported, match="nulls"):
        type_of(Pair).from_arrow(structs)


@pytest.mark.parametrize(
    ("annotation", "column", "values"),
    [
        (int, pa.array([1, 2], pa.int8()), [1, 2]),
        (float, pa.array([1, 2]), [1.0, 2.0]),
        (str, pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (str, pa.array(["a"], pa.large_string()), ["a"]),
        (dt.datetime, pa.array([NAIVE], pa.timestamp("s")), [NAIVE]),
        (list[int], pa.array([[1]], pa.large_list(pa.int32())), [[1]]),
        (int, pa.chunked_array([], pa.int64()), []),
        (list[int], pa.chunked_array([[[1]], [[2, 3]]]), [[1], [2, 3]]),
    ],
)
def test_columns_of_other_types_are_cast(annotation: Any, column: Any, values: list[Any]) -> None:
    assert type_of(annotation).from_arrow(column) == values


def test_a_cast_that_loses_something_is_refused() -> None:
    with pytest.raises(TypeNotSupported, match="double cannot be read as LONG"):
        type_of(int).from_arrow(pa.array([1.5]))
    with pytest.raises(TypeNotSupported, match="2 columns for the 1 fields"):
        type_of(tuple[int]).from_columns([pa.array([1]), pa.array([1])])


def test_aware_datetimes_come_back_in_utc() -> None:
    of, value = type_of(Instant), dt.datetime(2020, 1, 1, 12, tzinfo=PARIS)
    for restored in (of.decode(of.encode(value)), of.from_columns(of.to_columns([value]))[0]):
        assert restored == value
        assert restored.utcoffset() == dt.timedelta(0)
    assert of.encode(value) == of.encode(value.astimezone(dt.UTC))


@pytest.mark.parametrize("of", [Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.INSTANT()])
def test_the_ends_of_time(of: Any) -> None:
    first: Any = dt.date.min if of == Types.SQL_DATE() else dt.datetime.min  # noqa: DTZ901
    last: Any = dt.date.max if of == Types.SQL_DATE() else dt.datetime.max  # noqa: DTZ901
    if of == Types.INSTANT():
        first, last = first.replace(tzinfo=dt.UTC), last.replace(tzinfo=dt.UTC)
    assert of.from_columns(of.to_columns([first, last])) == [first, last]
    assert [of.decode(of.encode(v)) for v in (first, last)] == [first, last]


def test_numpy_numbers_are_numbers() -> None:
    of = type_of(tuple[int, float])
    value = (np.int64(3), np.float64(1.5))
    assert of.decode(of.encode(value)) == (3, 1.5)
    assert of.from_columns(of.to_columns([value])) == [(3, 1.5)]


def test_keys_have_the_same_bytes_before_and_after_a_column() -> None:
    of = type_of(tuple[str, float])
    (restored,) = of.from_columns(of.to_columns([("a", 1)]))
    keys = key_form(of)
    assert keys.encode(("a", 1)) == keys.encode(restored) == of.encode(("a", 1.0))
    plain = type_of(int)
    assert key_form(plain) is plain


class Custom:
    pass


@pytest.mark.parametrize("value", [Custom(), [Custom()], {"a": Custom()}, {1: (Custom(),)}, Custom])
def test_any_names_what_it_cannot_hold(value: Any) -> None:
    with pytest.raises(TypeNotSupported, match=r"Custom|type") as caught:
        Types.ANY().encode(value)
    assert "make it a dataclass" in str(caught.value)


def test_any_takes_namedtuples_that_no_name_leads_to_as_tuples() -> None:
    class Pair(NamedTuple):
        a: int
        b: list[int]

    restored = Types.ANY().decode(Types.ANY().encode([Pair(1, [2])]))
    assert restored == [(1, [2])]
    assert type(restored[0]) is tuple


def test_sets_in_any_order_of_unlike_members() -> None:
    of = type_of(set[int | str | None])
    assert of.encode({1, "a", None}) == of.encode({None, "a", 1})
    assert of.decode(of.encode({1, "a", None})) == {1, "a", None}
