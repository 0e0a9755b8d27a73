"""From annotations and names to types; what is refused, and how it is said."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import typing
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypeVar, Union
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest

from forkpoint.errors import TypeNotSupported
from forkpoint.types import Instant, Row, TypeInformation, Types, from_description, infer_type, type_of

UserId = NewType("UserId", int)
T = TypeVar("T")


class Box(msgspec.Struct, Generic[T]):
    item: T


class Suit(enum.Enum):
    SPADE = "s"


@pytest.mark.parametrize(
    ("bare", "builtin"),
    [(typing.List, list), (typing.Dict, dict), (typing.Set, set), (typing.Tuple, tuple)],  # noqa: UP006
)
def test_the_bare_names_of_typing_mean_what_the_builtins_mean(bare: Any, builtin: type) -> None:
    def of(annotation: Any) -> TypeInformation | str:
        try:
            return type_of(annotation)
        except TypeNotSupported as error:
            return str(error)

    assert of(bare) == of(builtin)


@pytest.mark.parametrize(
    ("annotation", "expected", "arrow"),
    [
        (int, Types.LONG(), pa.int64()),
        (float, Types.DOUBLE(), pa.float64()),
        (str, Types.STRING(), pa.string()),
        (bytes, Types.BYTES(), pa.binary()),
        (bool, Types.BOOLEAN(), pa.bool_()),
        (Decimal, Types.BIG_DEC(), pa.string()),
        (UUID, Types.UUID(), pa.string()),
        (dt.date, Types.SQL_DATE(), pa.date32()),
        (dt.time, Types.SQL_TIME(), pa.time64("us")),
        (dt.datetime, Types.SQL_TIMESTAMP(), pa.timestamp("us")),
        (Instant, Types.INSTANT(), pa.timestamp("us", "UTC")),
        (dt.timedelta, Types.DURATION(), pa.duration("us")),
        (Any, Types.ANY(), pa.binary()),
        (object, Types.PICKLED_BYTE_ARRAY(), pa.binary()),
        (None, type_of(type(None)), pa.null()),
        (
            tuple[int, str],
            Types.TUPLE([Types.LONG(), Types.STRING()]),
            pa.struct({"f0": pa.int64(), "f1": pa.string()}),
        ),
        (list[int], Types.PRIMITIVE_ARRAY(Types.LONG()), pa.list_(pa.int64())),
        (list[int | None], Types.LIST(Types.LONG()), pa.list_(pa.int64())),
        (list[str | None], Types.BASIC_ARRAY(Types.STRING()), pa.list_(pa.string())),
        (list[str | None], Types.OBJECT_ARRAY(Types.STRING()), pa.list_(pa.string())),
        (dict[str, int | None], Types.MAP(Types.STRING(), Types.LONG()), pa.map_(pa.string(), pa.int64())),
        (bytes, Types.PRIMITIVE_ARRAY(Types.BYTE()), pa.binary()),
        (Sequence[int], type_of(list[int]), pa.list_(pa.int64())),
        (Mapping[str, int], type_of(dict[str, int]), pa.map_(pa.string(), pa.int64())),
        (list, type_of(list[Any]), pa.list_(pa.binary())),
        (tuple, type_of(tuple[Any, ...]), pa.list_(pa.binary())),
        (UserId, Types.LONG(), pa.int64()),
        (Literal["a", "b"], Types.STRING(), pa.string()),
        (Annotated[int, Types.SHORT()], Types.SHORT(), pa.int16()),
        (Optional[int], type_of(int | None), pa.int64()),  # noqa: UP045
        (Union[int, str], type_of(int | str), pa.binary()),  # noqa: UP007
        (dict[int | None, int], type_of(dict[int | None, int]), pa.binary()),
        (Suit, type_of(Suit), pa.string()),
    ],
)
def test_annotations(annotation: Any, expected: Any, arrow: pa.DataType) -> None:
    assert type_of(annotation) == expected
    assert type_of(annotation).arrow_type == arrow


def test_widths() -> None:
    widths = [Types.BYTE(), Types.SHORT(), Types.INT(), Types.FLOAT()]
    assert [of.arrow_type for of in widths] == [pa.int8(), pa.int16(), pa.int32(), pa.float32()]
    assert Types.FLOAT().decode(Types.FLOAT().encode(0.1)) == Types.FLOAT().from_arrow(Types.FLOAT().to_arrow([0.1]))[0]


def test_only_optional_columns_are_nullable() -> None:
    class Pair(NamedTuple):
        a: int
        b: int | None

    assert [f.nullable for f in type_of(Pair).arrow_schema] == [False, True]
    assert type_of(int | None).arrow_schema.field("value").nullable


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (complex, "complex .* two floats"),
        (bytearray, "use bytes"),
        (collections.deque, "use list"),
        (collections.OrderedDict[str, int], "use dict"),
        (Row, "ROW_NAMED"),
        (type("Plain", (), {}), "Plain .* dataclass"),
        ("int", "the class itself"),
        (T, "type variable"),
        (Box[int], "parametrised"),
        (Box, r"Box\.item: .*type variable"),
        (list[int] | list[str], "values cannot be told apart"),
        (int | Annotated[int, Types.SHORT()], "values cannot be told apart"),
        ({"a": int}, "durable encoding"),
        (list[complex], "complex"),
        (enum.Enum("Nothing", []), "no members"),
    ],
)
def test_refusals(annotation: Any, said: str) -> None:
    with pytest.raises(TypeNotSupported, match=said):
        type_of(annotation)


def test_union_members_are_told_apart_by_class() -> None:
    class Sub(int):
        pass

    of = type_of(bool | int | str | None)
    assert [of.decode(of.encode(v)) for v in (True, 1, "a", None, Sub(4))] == [True, 1, "a", None, 4]
    assert of.decode(of.encode(True)) is True
    with pytest.raises(TypeNotSupported, match=r"1\.5 of type float"):
        of.encode(1.5)
    with pytest.raises(TypeNotSupported, match="True of type bool"):
        type_of(int | str).encode(True)


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"kind": "quaternion"},
        {"kind": "list"},
        [],
        {"kind": "record", "name": "a", "fields": [1]},
        {"kind": "record", "name": "a", "flavor": "tuple", "fields": [{"name": None, "type": {"kind": "long"}}]},
        {"kind": "record", "name": "a", "flavor": "tuple", "fields": [{"name": "b", "type": {"kind": "long"}}] * 2},
        {"kind": "enum", "name": 7, "form": "str", "members": [["A", "a"]]},
    ],
)
def test_broken_descriptions(description: Any) -> None:
    with pytest.raises(TypeNotSupported):
        from_description(description)


NAIVE = dt.datetime(2020, 1, 1)  # noqa: DTZ001
AWARE = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], Any),
        ([None], Any),
        ([1, 2], int),
        ([1, 2**64], Types.BIG_INT()),
        ([1, None], int | None),
        ([1, 1.5], Any),
        ([True, 1], Any),
        ([NAIVE], dt.datetime),
        ([AWARE], Instant),
        ([AWARE, NAIVE], Any),
        ([(1, "a"), (2, None)], tuple[int, str | None]),
        ([(1,), (1, 2)], Any),
        ([[1], [None], []], list[int | None]),
        ([{"a": 1}, {}], dict[str, int]),
        ([{1, 2}], set[int]),
        ([Suit.SPADE], Suit),
        ([Row(a=1, b=None)], Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.ANY()])),
        ([Row(1), Row(1, 2)], Any),
    ],
)
def test_inference(values: list[Any], expected: Any) -> None:
    of = infer_type(values)
    assert of == type_of(expected)
    assert of.from_columns(of.to_columns(values)) == values


def test_inference_from_records() -> None:
    class Pair(NamedTuple):
        a: int
        b: str

    assert infer_type([Pair(1, "x")]) == type_of(Pair)
    assert infer_type([Pair("wrong", "x")]) == Types.ANY()  # type: ignore[arg-type]
    assert infer_type([type("Plain", (), {})()]) == Types.ANY()
