"""Records: flavors, defaults, __post_init__, odd classes, Row."""

from __future__ import annotations

import dataclasses
import pickle
from collections import namedtuple
from dataclasses import InitVar, dataclass, field
from datetime import date
from typing import Any, ClassVar, NamedTuple

import msgspec
import pytest

from forkpoint.errors import TypeNotSupported
from forkpoint.types import Row, TypeInformation, Types, from_description, type_of


class Point(NamedTuple):
    x: int
    y: int = 7


@dataclass
class Account:
    owner: str
    balance: float = 0.0
    history: list[Point] = field(default_factory=list)
    opened: date = date(2020, 1, 1)
    limit: ClassVar[int] = 5


class Sensor(msgspec.Struct):
    room: str
    level: int = 3
    tags: dict[str, int] = msgspec.field(default_factory=dict)


def round_trip(of: TypeInformation, value: Any) -> Any:
    """Both ways, which must agree."""
    by_bytes = of.decode(of.encode(value))
    (by_columns,) = of.from_columns(of.to_columns([value]))
    assert by_bytes == by_columns
    assert type(by_bytes) is type(by_columns)
    return by_bytes


def test_layouts_on_the_wire() -> None:
    decode = msgspec.msgpack.decode
    assert decode(type_of(Point).encode(Point(1, 2))) == [1, 2]
    assert decode(type_of(Sensor).encode(Sensor("a"))) == {"room": "a", "level": 3, "tags": {}}
    assert list(decode(type_of(Account).encode(Account("a")))) == ["owner", "balance", "history", "opened"]
    assert decode(Types.ROW_NAMED(["b", "a"], [int, str]).encode(Row(a="x", b=1))) == [1, "x"]


@pytest.mark.parametrize("cls", [int, str, tuple[int, int], Point, Sensor])
def test_common_types_need_no_python_function(cls: Any) -> None:
    of = type_of(cls)
    assert [type(function).__name__ for function in (of.encode, of.decode)] == ["builtin_function_or_method"] * 2


def test_fields_know_their_defaults() -> None:
    fields = {f.name: f for f in type_of(Account).fields or ()}
    assert list(fields) == ["owner", "balance", "history", "opened"]
    assert not fields["owner"].has_default
    assert fields["balance"].make_default() == 0.0
    first, second = fields["history"].make_default(), fields["history"].make_default()
    assert first == second == []
    assert first is not second
    with pytest.raises(TypeNotSupported, match="owner"):
        fields["owner"].make_default()
    assert [f.has_default for f in type_of(Point).fields or ()] == [False, True]
    assert [f.has_default for f in type_of(Sensor).fields or ()] == [False, True, True]


@pytest.mark.parametrize("cls", [Point, Account, Sensor])
def test_descriptions_keep_defaults(cls: Any) -> None:
    of, classless = type_of(cls), from_description(type_of(cls).describe())
    mine = [f.make_default() for f in of.fields or () if f.has_default]
    assert [f.make_default() for f in classless.fields or () if f.has_default] == mine
    assert classless.describe() == of.describe()


def test_missing_fields_take_defaults() -> None:
    of = type_of(Account)
    assert of.decode(msgspec.msgpack.encode({"owner": "a"})) == Account("a")
    row = from_description(of.describe()).decode(msgspec.msgpack.encode({"owner": "a"}))
    assert row == Row(owner="a", balance=0.0, history=[], opened=date(2020, 1, 1))
    assert type_of(Sensor).decode(msgspec.msgpack.encode({"room": "a"})) == Sensor("a")


def test_a_default_is_part_of_the_type() -> None:
    other = dataclasses.make_dataclass("Account", [("owner", str), ("balance", float, 1.0)])
    same = dataclasses.make_dataclass("Account", [("owner", str), ("balance", float, 1.0)])
    assert type_of(other) == type_of(same)
    assert type_of(other) != type_of(dataclasses.make_dataclass("Account", [("owner", str), ("balance", float)]))


def test_a_factory_of_ones_own_is_named_not_run() -> None:
    def explode() -> int:
        raise AssertionError("run")

    of = type_of(dataclasses.make_dataclass("Lazy", [("x", int, field(default_factory=explode))]))
    assert of.describe()["fields"][0]["default"] == {"factory": "explode"}
    assert from_description(of.describe()) == of


def test_post_init_runs_and_does_not_spoil_saved_fields() -> None:
    @dataclass
    class Meter:
        reading: int
        seen: list[int] = field(init=False)

        def __post_init__(self) -> None:
            self.reading *= 2
            self.seen = []
            self.cache = {"fresh": True}

    meter = Meter(1)
    meter.seen = [5]
    restored = round_trip(type_of(Meter), meter)
    assert (restored.reading, restored.seen, restored.cache) == (2, [5], {"fresh": True})


def test_post_init_of_a_struct() -> None:
    class Meter(msgspec.Struct, dict=True, frozen=True):
        reading: int

        def __post_init__(self) -> None:
            msgspec.structs.force_setattr(self, "reading", self.reading * 2)

    assert round_trip(type_of(Meter), Meter(1)).reading == 2


def test_dataclass_variants() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Frozen:
        a: int
        b: str = "x"

    @dataclass(init=False)
    class Own:
        a: int

        def __init__(self, text: str) -> None:
            self.a = len(text)

    class Sub(Point):
        def norm(self) -> int:
            return self.x + self.y

    assert round_trip(type_of(Frozen), Frozen(a=1)) == Frozen(a=1)
    assert round_trip(type_of(Own), Own("four")).a == 4
    assert round_trip(type_of(Sub), Sub(1, 2)).norm() == 3


def test_struct_options_do_not_show_on_the_wire() -> None:
    class Odd(msgspec.Struct, kw_only=True, tag="odd", rename="camel", omit_defaults=True):
        room_name: str
        level: int = 3

    class AsArray(msgspec.Struct, array_like=True):
        a: int

    of = type_of(Odd)
    assert round_trip(of, Odd(room_name="a")) == Odd(room_name="a")
    assert msgspec.msgpack.decode(of.encode(Odd(room_name="a"))) == {"room_name": "a", "level": 3}
    assert from_description(of.describe()).decode(of.encode(Odd(room_name="a"))) == Row(room_name="a", level=3)
    assert msgspec.msgpack.decode(type_of(AsArray).encode(AsArray(1))) == {"a": 1}


def test_namedtuple_without_annotations_is_dynamic() -> None:
    pair = namedtuple("pair", ["a", "b"])
    assert round_trip(type_of(pair), pair([1], {2: (3,)})) == pair([1], {2: (3,)})


def test_records_without_fields_keep_their_number() -> None:
    empty = dataclasses.make_dataclass("Empty", [])
    of = type_of(empty)
    assert of.from_columns(of.to_columns([empty(), empty()])) == [empty(), empty()]
    assert type_of(tuple[()]).from_columns(type_of(tuple[()]).to_columns([()])) == [()]
    assert round_trip(type_of(list[empty | None]), [empty(), None]) == [empty(), None]  # type: ignore[valid-type]


def test_refused_records() -> None:
    @dataclass
    class WithInitVar:
        a: int
        scale: InitVar[int]

    with pytest.raises(TypeNotSupported, match="InitVar"):
        type_of(WithInitVar)
    with pytest.raises(TypeNotSupported, match=r"Broken\.x: values of complex .* two floats"):
        type_of(dataclasses.make_dataclass("Broken", [("x", complex)]))
    with pytest.raises(TypeNotSupported, match="'notadate' is not a value of SQL_DATE"):
        type_of(dataclasses.make_dataclass("Broken", [("x", date, "notadate")]))
    with pytest.raises(TypeNotSupported, match="Nowhere"):
        type_of(dataclasses.make_dataclass("Lost", [("x", "Nowhere")]))
    with pytest.raises(TypeNotSupported, match="contains itself"):
        type_of(Tree)
    with pytest.raises(TypeNotSupported, match="each once"):
        Types.ROW_NAMED(["a", "a"], [int, int])


@dataclass
class Tree:
    children: list[Tree]


def test_wrong_values_are_named() -> None:
    of = type_of(Point)
    with pytest.raises(TypeNotSupported, match=r"Point\.y: 'two'"):
        of.to_columns([Point(1, 2), Point(1, "two")])  # type: ignore[arg-type]
    with pytest.raises(TypeNotSupported, match=r"\(1, 2, 3\) is not a tuple of the 2 fields"):
        of.to_columns([Point(1, 2), (1, 2, 3)])
    with pytest.raises(TypeNotSupported, match="not a Row"):
        Types.ROW([int]).encode("x")
    with pytest.raises(TypeNotSupported, match="not a Account"):
        type_of(Account).to_columns([Point(1)])


def test_annotations_of_the_classes_are_left_alone() -> None:
    @dataclass
    class Base:
        a: int

    @dataclass
    class Derived(Base):
        b: Base

    before = dict(Base.__annotations__), dict(Derived.__annotations__)
    assert round_trip(type_of(Derived), Derived(1, Base(2))) == Derived(1, Base(2))
    assert (Base.__annotations__, Derived.__annotations__) == before
    assert not [name for cls in (Base, Derived) for name in vars(cls) if "msgspec" in name]


def test_rows() -> None:
    person = Row("name", "age")
    ann = person("Ann", 30)
    assert (ann.name, ann["age"], ann[0], list(ann)) == ("Ann", 30, "Ann", ["Ann", 30])
    assert ann.as_dict() == {"name": "Ann", "age": 30}
    assert ann == Row(name="Ann", age=30) == Row("Ann", 30)
    assert Row(a=1) != Row(b=1)
    assert hash(ann) == hash(Row("Ann", 30))
    ann.age = 31
    ann["name"] = "Bea"
    assert repr(ann) == "Row(name='Bea', age=31)"
    assert pickle.loads(pickle.dumps(ann)) == ann
    with pytest.raises(AttributeError, match="height"):
        ann.height  # noqa: B018
    with pytest.raises(AttributeError, match="height"):
        ann.height = 1
    with pytest.raises(TypeError, match="without field names"):
        Row(1).as_dict()


def test_row_types_take_rows_tuples_and_none() -> None:
    of = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
    for value in (Row(age=3, name="a"), Row("a", 3), ("a", 3)):
        assert round_trip(of, value) == Row(name="a", age=3)
    assert round_trip(of, Row(None, None)).name is None
    assert round_trip(Types.ROW([Types.LONG()]), Row(5)).f0 == 5


def test_a_union_of_classless_records_keeps_them_apart() -> None:
    @dataclass
    class Left:
        a: int

    @dataclass
    class Right:
        a: int

    of = type_of(Left | Right)
    classless = from_description(of.describe())
    for value in (Left(1), Right(1)):
        foreign = classless.decode(of.encode(value))
        assert isinstance(foreign, Row)
        assert of.decode(classless.encode(foreign)) == value
        assert pickle.loads(pickle.dumps(foreign)) == foreign
