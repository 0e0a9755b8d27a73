"""`TypeInformation.accept`: what a type makes of a value that is handed over."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import enum
import math
import threading
from decimal import Decimal
from typing import Any, NamedTuple, Optional, Union
from uuid import UUID

import msgspec
import numpy as np
import pytest
import type_strategies as ts
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.errors import TypeNotSupported
from forkpoint.types import Row, TypeInformation, Types, independent, independent_all, type_of


def insides(value: Any) -> list[Any]:
    """The value and all that is inside it."""
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, tuple | list | set | frozenset | Row):
        parts = list(value)
    elif dataclasses.is_dataclass(value):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, msgspec.Struct):
        parts = [getattr(value, name) for name in value.__struct_fields__]
    else:
        parts = []
    return [value, *(inner for part in parts for inner in insides(part))]


def can_change(value: Any) -> bool:
    if isinstance(value, msgspec.Struct):
        return not value.__struct_config__.frozen
    if dataclasses.is_dataclass(value):
        return not value.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return isinstance(value, list | dict | set | Row)


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[TypeInformation, Any]:
    annotation, values = draw(ts.types)
    return type_of(annotation), draw(values)


@st.composite
def typed_misfits(draw: st.DrawFn) -> tuple[TypeInformation, Any]:
    """A type and a value that is one of another."""
    annotation, _ = draw(ts.types)
    _, values = draw(ts.types)
    return type_of(annotation), draw(values)


@given(typed_values())
def test_a_value_of_the_type_is_what_would_be_read_back(typed: tuple[TypeInformation, Any]) -> None:
    of, value = typed
    accepted = of.accept(value)
    assert ts.exact(accepted) == ts.exact(of.decode(of.encode(value)))
    changing = {id(part) for part in insides(value) if can_change(part)}
    assert not changing & {id(part) for part in insides(accepted)}
    assert not of.immutable or not any(can_change(part) for part in insides(accepted))


@given(typed_values() | typed_misfits())
def test_what_is_accepted_can_be_read_again(typed: tuple[TypeInformation, Any]) -> None:
    of, value = typed
    try:
        accepted = of.accept(value)
    except TypeNotSupported:
        return
    assert ts.exact(of.decode(of.encode(accepted))) == ts.exact(accepted)
    assert ts.exact(of.from_columns(of.to_columns([accepted]))) == ts.exact([accepted])
    again = of.accept(accepted)
    assert ts.exact(again) == ts.exact(accepted)
    assert not of.immutable or again is accepted


@given(st.data())
def test_many_are_accepted_as_each(data: st.DataObject) -> None:
    annotation, values = data.draw(ts.types)
    _, others = data.draw(ts.types)
    of = type_of(annotation)
    some = data.draw(st.lists(values, max_size=4)) + data.draw(st.lists(others, max_size=1))
    before = list(some)
    try:
        expected = [of.accept(value) for value in some]
    except TypeNotSupported:
        with pytest.raises(TypeNotSupported):
            of.accept_all(some)
        return
    accepted = of.accept_all(some)
    assert ts.exact(accepted) == ts.exact(expected)
    assert all(a is b for a, b in zip(some, before, strict=True))
    if of.immutable:
        assert of.all_exact(some) == all(of.accept(value) is value for value in some)
        assert (accepted is some) == of.all_exact(some)


class Point(NamedTuple):
    x: int
    name: str


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: float
    tags: tuple[str, ...] = ()


class Struct(msgspec.Struct, frozen=True):
    id: UUID
    at: Optional[dt.date] = None  # noqa: UP045


class Open(msgspec.Struct):
    x: int


class Code(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("annotation", "immutable"),
    [
        (int, True),
        (str, True),
        (Types.FLOAT(), True),
        (Decimal, True),
        (Code, True),
        (tuple[int, ...], True),
        (frozenset[str], True),
        (Point, True),
        (Frozen, True),
        (Struct, True),
        (Optional[Point], True),  # noqa: UP045
        (Union[int, str, Point], True),  # noqa: UP007
        (list[int], False),
        (set[int], False),
        (dict[str, int], False),
        (Open, False),
        (tuple[int, list[int]], False),
        (tuple[Open, ...], False),
        (Types.ROW([Types.INT()]), False),
        (Any, False),
    ],
)
def test_a_type_knows_whether_its_values_can_change(annotation: Any, immutable: bool) -> None:
    assert type_of(annotation).immutable is immutable


ONE_TIME = UUID(int=1)


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (Types.LONG(), 2**63 - 1),
        (Types.DOUBLE(), 0.1),
        (Types.FLOAT(), 0.5),
        (Types.STRING(), "Б"),
        (type_of(tuple[int, str]), (1, "a")),
        (type_of(Point), Point(1, "a")),
        (type_of(Frozen), Frozen(0.5, ("a",))),
        (type_of(Struct), Struct(ONE_TIME)),
        (type_of(Union[int, Point]), Point(1, "a")),  # noqa: UP007
        (Types.ANY(), (1, ("a", None))),
        (Types.INSTANT(), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        (type_of(Code), Code.ONE),
    ],
)
def test_what_cannot_change_stays_the_same_object(of: TypeInformation, value: Any) -> None:
    assert of.accept(value) is value


@pytest.mark.parametrize(
    ("of", "value", "expected"),
    [
        (Types.ROW_NAMED(["id", "info"], [Types.INT(), Types.STRING()]), (1, "a"), Row(id=1, info="a")),
        (Types.ROW_NAMED(["id", "info"], [Types.INT(), Types.STRING()]), Row(info="a", id=1), Row(id=1, info="a")),
        (Types.TUPLE([Types.INT(), Types.STRING()]), [1, "a"], (1, "a")),
        (Types.FLOAT(), 0.1, float(np.float32(0.1))),
        (Types.DOUBLE(), 3, 3.0),
        (Types.LONG(), True, 1),
        (Types.LONG(), np.int32(3), 3),
        (type_of(tuple[float, int]), (1, 2), (1.0, 2)),
        (type_of(Point), (1, "a"), Point(1, "a")),
        (Types.LIST(Types.DOUBLE()), (1, None), [1.0, None]),
        (Types.MAP(Types.STRING(), Types.FLOAT()), {"b": 1, "a": 2}, {"b": 1.0, "a": 2.0}),
    ],
)
def test_other_values_become_what_the_type_says(of: TypeInformation, value: Any, expected: Any) -> None:
    accepted = of.accept(value)
    assert ts.exact(accepted) == ts.exact(expected)
    if isinstance(accepted, Row):
        assert accepted.field_names == expected.field_names
    if isinstance(accepted, dict):
        assert list(accepted) == list(expected)  # its order stays


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (Types.INT(), 2**40),
        (Types.INT(), "3"),
        (Types.LONG(), 2**63),
        (Types.LONG(), 3.0),
        (Types.STRING(), 3),
        (Types.STRING(), None),
        (Types.STRING(), "\ud800"),
        (Types.DURATION(), dt.timedelta.max),
        (Types.FLOAT(), 1e300),
        (Types.BOOLEAN(), 1),
        (Types.SQL_DATE(), dt.datetime(2020, 1, 1)),  # noqa: DTZ001
        (Types.SQL_DATE(), "2020-01-01"),
        (type_of(list[int]), [1, 2**63]),
        (type_of(list[int]), [1, None]),
        (type_of(list[int]), 2),
        (type_of(tuple[int, str]), (1,)),
        (type_of(tuple[int, str]), (1, None)),
        (type_of(Point), Point("a", 1)),  # type: ignore[arg-type]
        (type_of(dict[str, int]), {1: 1}),
        (Types.ROW([Types.INT()]), 3),
        (Types.ANY(), object()),
        (Types.ANY(), ["\ud800"]),
    ],
)
def test_what_does_not_fit_is_refused_by_name(of: TypeInformation, value: Any) -> None:
    with pytest.raises(TypeNotSupported) as refused:
        of.accept(value)
    assert any(repr(part) in str(refused.value) or str(part) in str(refused.value) for part in insides(value))
    with pytest.raises(TypeNotSupported):
        of.accept_all([value])


def test_numbers_that_are_not_are_accepted() -> None:
    assert math.isnan(Types.FLOAT().accept(math.nan))
    assert Types.FLOAT().accept_all([math.nan, math.inf]) == [pytest.approx(math.nan, nan_ok=True), math.inf]


@given(ts.DYNAMIC)
def test_dynamic_values_are_independent(value: Any) -> None:
    before = copy.deepcopy(value)
    accepted = Types.ANY().accept(value)
    assert ts.exact(accepted) == ts.exact(before)
    assert not {id(p) for p in insides(value) if can_change(p)} & {id(p) for p in insides(accepted)}


# -- values without a declaration --------------------------------------------------------------------------------------


@given(typed_values())
def test_values_that_nobody_declared_are_independent(typed: tuple[TypeInformation, Any]) -> None:
    _, value = typed
    copied = independent(value)
    assert ts.exact(copied) == ts.exact(value)
    assert not {id(p) for p in insides(value) if can_change(p)} & {id(p) for p in insides(copied)}
    if not any(can_change(part) for part in insides(value)):
        assert copied is value
        assert (some := [value, value]) is independent_all(some)


class Plain:
    def __init__(self) -> None:
        self.seen = [1]


def test_objects_of_any_class_are_copied() -> None:
    plain, array, loop = Plain(), np.zeros(2), list[Any]()
    loop.append(loop)
    assert independent(plain) is not plain
    assert independent(plain).seen == [1]
    assert independent(plain).seen is not plain.seen
    assert independent(array) is not array
    assert independent(loop) is not loop
    with pytest.raises(TypeNotSupported, match="cannot be copied"):
        independent([threading.Lock()])
