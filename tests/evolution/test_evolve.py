"""``evolve``: what it allows, and that values become what Python would make of them."""

# ruff: noqa: UP007, UP045 - types that are put together by a program have these names

from __future__ import annotations

import dataclasses
import enum
import re
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, Optional, Union

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_counts import examples
from forkpoint.errors import TypeNotSupported
from forkpoint.savepoint.restore.evolution import convert_columns
from forkpoint.types import (
    Evolution,
    Misfit,
    RenamedFrom,
    Step,
    TypeInformation,
    Types,
    evolve,
    from_description,
    type_of,
)


def convert(values: list[Any], old: Any, new: Any) -> list[Any]:
    """What a restore does: columns of the saved type, without its class, to values of the new one."""
    new = type_of(new)
    found = evolve(type_of(old).describe(), new)
    assert isinstance(found, Evolution), found
    step = msgspec.msgpack.decode(msgspec.msgpack.encode(found.step), type=Step)
    saved = from_description(type_of(old).describe())
    columns = saved.to_columns([saved.decode(type_of(old).encode(value)) for value in values])
    sliced = [pa.chunked_array([pa.concat_arrays([c.slice(0, 0), c])]) for c in columns]
    made = new.from_columns(convert_columns(sliced, saved, new, step))
    if found.identical:
        assert made == [new.decode(type_of(old).encode(value)) for value in values]
    return made


class Small(enum.Enum):
    A = "a"


class Large(enum.Enum):
    B = "b"
    A = "a"


Counted1 = enum.Enum("Counted1", "NEW PAID")
Counted2 = enum.Enum("Counted2", "DRAFT NEW PAID")  # every value is another one


class Texts(enum.Enum):
    PAID = "paid"
    NEW = "new"


class Swapped1(enum.Enum):
    A = "x"
    B = "y"


class Swapped2(enum.Enum):
    A = "y"
    B = "x"


class Retitled(enum.Enum):
    SETTLED = "paid"
    NEW = "new"


class Aliased(enum.Enum):
    OPEN = 7
    NEW = OPEN  # its former name
    PAID = 8


class ByName1(enum.Enum):
    A = (1, 2)


class ByName2(enum.Enum):
    A = (3, 4)
    B = None


@pytest.mark.parametrize(
    ("old", "new", "values", "expected", "identical"),
    [
        (Types.BYTE(), Types.SHORT(), [1, -128], [1, -128], True),
        (Types.INT(), int, [2**31 - 1], [2**31 - 1], True),
        (int, Types.BIG_INT(), [2**63 - 1], [2**63 - 1], True),
        (int, float, [3, -(2**53)], [3.0, -(2.0**53)], False),
        (Types.SHORT(), Types.FLOAT(), [32767], [32767.0], False),
        (int, Decimal, [7], [Decimal(7)], False),
        (Types.FLOAT(), float, [0.5], [0.5], True),
        (int, Optional[int], [1], [1], True),
        (Optional[int], Optional[float], [1, None, 3], [1.0, None, 3.0], False),
        (list[int], list[Optional[float]], [[1, 2], [], [3]], [[1.0, 2.0], [], [3.0]], False),
        (list[int], tuple[int, ...], [[1, 2], []], [(1, 2), ()], True),
        (set[int], frozenset[Types.BIG_INT()], [{1, 2}], [frozenset({1, 2})], True),
        (dict[str, int], dict[str, float], [{"a": 1, "b": 2}, {}], [{"a": 1.0, "b": 2.0}, {}], False),
        (dict[Optional[int], int], dict[Optional[int], float], [{None: 1, 4: 2}], [{None: 1.0, 4: 2.0}], False),
        (tuple[int, str], tuple[float, str], [(1, "a")], [(1.0, "a")], False),
        (Small, Large, [Small.A], [Large.A], True),
        (ByName1, ByName2, [ByName1.A], [ByName2.A], True),
        (Counted1, Counted2, list(Counted1), [Counted2.NEW, Counted2.PAID], False),
        (list[Counted1], list[Counted2], [[Counted1.PAID]], [[Counted2.PAID]], False),
        (Optional[Counted1], Optional[Counted2], [Counted1.PAID, None], [Counted2.PAID, None], False),
        (dict[str, Counted1], dict[str, Counted2], [{"a": Counted1.NEW}], [{"a": Counted2.NEW}], False),
        (Counted1, Texts, list(Counted1), [Texts.NEW, Texts.PAID], False),
        (Texts, Counted2, list(Texts), [Counted2.PAID, Counted2.NEW], False),
        (Swapped1, Swapped2, list(Swapped1), list(Swapped2), False),
        (Texts, Retitled, [Texts.PAID], [Retitled.SETTLED], True),
        (Counted1, Aliased, list(Counted1), [Aliased.OPEN, Aliased.PAID], False),
        (Union[int, str], Union[int, str, bytes], [1, "a"], [1, "a"], True),
        (list[Union[int, str]], list[Union[int, str, bytes]], [[1, "a"]], [[1, "a"]], True),
        (tuple[()], tuple[()], [()], [()], True),
    ],
)
def test_types_that_become_wider(old, new, values, expected, identical):
    found = evolve(type_of(old).describe(), type_of(new))
    assert isinstance(found, Evolution)
    assert found.identical == identical
    assert found.changes or old == new
    made = convert(values, old, new)
    assert made == expected
    assert list(map(type, made)) == list(map(type, expected))


class Pair(NamedTuple):
    a: int
    b: str


class Required(NamedTuple):
    a: int
    b: str
    c: int


Counted3 = enum.Enum("Counted3", "DRAFT PAID")  # 1 and 2, too: DRAFT is not NEW
Split = enum.Enum("Split", "NEW OPEN PAID")
Bits1 = enum.Flag("Bits1", "READ WRITE")
Bits2 = enum.Flag("Bits2", "ALL READ WRITE")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (int, Types.INT(), "LONG cannot become INT"),
        (float, int, "DOUBLE cannot become LONG"),
        (int, Types.FLOAT(), "LONG cannot become FLOAT"),
        (int, str, "LONG cannot become STRING"),
        (Optional[int], int, "Optional.*cannot become LONG"),
        (Any, int, "ANY cannot become LONG"),
        (list[Optional[Pair]], Any, r"cannot become ANY: Pair.* is saved without its class; keep the type"),
        (Small, Any, "is saved without its class"),
        (dict[str, int], dict[Any, int], "keys of a dict cannot change"),
        (set[int], set[Any], "elements of a set cannot change"),
        (tuple[int, int], tuple[int, int, int], "without names"),
        (tuple[int, int, int], tuple[int, int], "without names"),
        (Pair, Required, "^c was added without a default"),
        (list[Pair], list[Required], r"^\[\].c was added without a default"),
        (list[int], set[int], "cannot become"),
        (set[int], set[float], "elements of a set cannot change"),
        (dict[int, int], dict[float, int], "keys of a dict cannot change"),
        (Large, Small, r"B \('b'\) is no longer a member; if it is renamed, keep its old name as an alias"),
        (Counted2, Counted1, "DRAFT .1. is no longer a member"),
        (Counted1, Counted3, "NEW .1. is no longer a member"),
        (Aliased, Split, "OPEN is no longer an alias"),
        (Bits1, Bits2, "the bits of a Flag must stay"),
        (set[Counted1], set[Counted2], "elements of a set cannot change"),
        (dict[Counted1, int], dict[Counted2, int], "keys of a dict cannot change"),
        (Union[int, str], Union[float, str], "first members"),
        (Union[int, str], int, "cannot become"),
    ],
)
def test_what_does_not_fit_says_why(old, new, why):
    found = evolve(type_of(old).describe(), type_of(new))
    assert isinstance(found, Misfit)

    assert re.search(why, found.why), found.why


@pytest.mark.parametrize(("value", "fits"), [(2**53, True), (2**53 + 1, False), (-(2**53) - 1, False)])
def test_numbers_stay_exact(value, fits):
    if fits:
        assert convert([value], int, float) == [float(value)]
    else:
        with pytest.raises(pa.ArrowInvalid, match=str(value)):
            convert([value], int, float)


class Three(NamedTuple):
    a: int
    b: int
    c: int = -3


class SwappedFields(NamedTuple):
    a: Annotated[int, RenamedFrom("b")]
    b: Annotated[int, RenamedFrom("a")]


class ReusedName(NamedTuple):
    """What was a is old now, and there is a new a."""

    old: Annotated[int, RenamedFrom("a")]
    b: int
    a: int = 0


class ChainOfNames(NamedTuple):
    b: Annotated[int, RenamedFrom("a")]
    c: Annotated[int, RenamedFrom("b")]
    d: Annotated[int, RenamedFrom("c")] = 0


class Chained(NamedTuple):
    second: Annotated[int, RenamedFrom("first", "a")]
    b: str


def test_renames():
    assert convert([Pair(1, "x")], Pair, Chained) == [Chained(1, "x")]
    found = evolve(type_of(Pair).describe(), type_of(Chained))
    assert isinstance(found, Evolution)
    assert found.changes == ("a renamed to second",)


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (SwappedFields, SwappedFields(a=2, b=1)),
        (ReusedName, ReusedName(old=1, b=2, a=0)),
        (ChainOfNames, ChainOfNames(b=1, c=2, d=3)),
        (list[SwappedFields], [SwappedFields(a=2, b=1)]),
    ],
)
def test_a_rename_holds_where_the_old_name_is_declared_again(new, expected):
    value: Any = Three(1, 2, 3)
    old: Any = Three
    if isinstance(expected, list):
        value, old = [value], list[Three]
    assert convert([value], old, new) == [expected]
    # It is applied once: what was saved with it has its fields where they belong.
    assert convert([expected], new, new) == [expected]
    found = evolve(type_of(new).describe(), type_of(new))
    assert isinstance(found, Evolution)
    assert found.identical
    assert not found.changes


class RenamedTwice(NamedTuple):
    oldest: Annotated[int, RenamedFrom("old", "a")]
    b: int
    a: int = 0
    old: int = 9


def test_a_field_that_is_renamed_again():
    assert convert([Three(1, 2)], Three, RenamedTwice) == [RenamedTwice(1, 2, 0, 9)]
    assert convert([ReusedName(1, 2, 5)], ReusedName, RenamedTwice) == [RenamedTwice(1, 2, 5, 9)]
    assert convert([RenamedTwice(1, 2, 5, 6)], RenamedTwice, RenamedTwice) == [RenamedTwice(1, 2, 5, 6)]


def test_what_an_earlier_release_saved_may_be_from_before_a_rename_or_after():
    """Its descriptions do not say which: where that matters, the restore is refused."""
    described = type_of(Three).describe()
    found = evolve(described, type_of(SwappedFields), renames_recorded=False)
    assert isinstance(found, Misfit)
    assert "has both b and a, and was saved by a forkpoint that did not record renames" in found.why
    found = evolve(described, type_of(ReusedName), renames_recorded=False)  # it has no field "old", so this is clear
    assert isinstance(found, Evolution)


class Twice(NamedTuple):
    x: Annotated[int, RenamedFrom("a")]
    y: Annotated[int, RenamedFrom("a")]


def test_two_fields_of_one_former_name_are_refused():
    found = evolve(type_of(Three).describe(), type_of(Twice))
    assert isinstance(found, Misfit)
    assert "has two fields that are renamed from a" in found.why


class Losing(NamedTuple):
    b: int
    total: int = 0
    note: str = ""


def test_dropped_fields_are_listed_with_what_they_may_be_now():
    found = evolve(type_of(list[Three]).describe(), type_of(list[Losing]))
    assert isinstance(found, Evolution)
    hint = "(if it is total now, annotate that with RenamedFrom('{}'))"
    assert found.dropped == (f"[].a {hint.format('a')}", f"[].c {hint.format('c')}")
    assert evolve(type_of(Pair).describe(), type_of(Chained)).dropped == ()  # type: ignore[union-attr]


def test_renames_are_no_part_of_the_type():
    class Second(NamedTuple):
        second: int
        b: str

    Second.__name__ = "Chained"
    assert type_of(Second) == type_of(Chained)
    assert from_description(type_of(Chained).describe()).describe() == type_of(Chained).describe()


def test_a_rename_that_would_say_nothing_is_refused():
    class Inside(NamedTuple):
        total: Optional[Annotated[int, RenamedFrom("sum")]]

    with pytest.raises(TypeNotSupported, match=r"Inside.total: RenamedFrom\('sum'\) is inside another type"):
        type_of(Inside)
    with pytest.raises(TypeNotSupported, match="former names as strings"):
        RenamedFrom()


def test_a_rename_stands_beside_other_annotations():
    class Both(NamedTuple):
        second: Annotated[int, Types.BIG_INT(), RenamedFrom("a")]
        b: str

    assert repr(type_of(Both)) == "Both(second: BIG_INT, b: STRING)"
    assert convert([Pair(1, "x")], Pair, Both) == [Both(1, "x")]


# -- random records and random compatible changes ----------------------------------------------------------------------

MISSING = object()


@dataclasses.dataclass
class Shape:
    """A type before and after, with values and what Python makes of them."""

    old: Any
    new: Any
    values: st.SearchStrategy[Any]
    convert: Any


LEAVES = st.sampled_from(
    [
        Shape(int, int, st.integers(-9, 9), lambda v: v),
        Shape(int, float, st.integers(-9, 9), float),
        Shape(Types.INT(), int, st.integers(-9, 9), lambda v: v),
        Shape(Types.SHORT(), Decimal, st.integers(-9, 9), Decimal),
        Shape(str, str, st.text(max_size=3), lambda v: v),
        Shape(Small, Large, st.just(Small.A), lambda v: Large.A),
        Shape(bytes, Optional[bytes], st.binary(max_size=3), lambda v: v),
        Shape(Optional[int], Optional[float], st.none() | st.integers(-9, 9), lambda v: None if v is None else float(v)),
    ]
)
ADDED = [
    (int, 5),
    (float, 0.5),
    (str, "new"),
    (Optional[int], None),
    (Optional[str], MISSING),
    (tuple[int, str], (1, "x")),
]


@st.composite
def records(draw: Any, inner: st.SearchStrategy[Shape]) -> Shape:
    parts = draw(st.lists(inner, min_size=1, max_size=4))
    fates = [draw(st.sampled_from(["keep", "keep", "rename", "drop"])) for _ in parts]
    added = draw(st.lists(st.sampled_from(ADDED), max_size=2))
    old_cls = make(draw(FLAVORS), [(f"x{i}", part.old, MISSING) for i, part in enumerate(parts)])
    kept = [(i, part) for i, (part, fate) in enumerate(zip(parts, fates, strict=True)) if fate != "drop"]
    kept = draw(st.permutations(kept))
    fields = [
        (f"y{i}", Annotated[part.new, RenamedFrom("unknown", f"x{i}")], MISSING)
        if fates[i] == "rename"
        else (f"x{i}", part.new, MISSING)
        for i, part in kept
    ]
    new_fields = [(f"z{i}", of, default) for i, (of, default) in enumerate(added)]
    fields += sorted(new_fields, key=lambda field: field[2] is not MISSING)
    if any(field[2] is MISSING for field in new_fields):  # required by Python, yet None stands in for it
        fields = sorted(fields, key=lambda field: field[2] is not MISSING)
    new_cls = make(draw(FLAVORS), fields)

    def to_new(value: Any) -> Any:
        taken = {(f"y{i}" if fates[i] == "rename" else f"x{i}"): part.convert(getattr(value, f"x{i}")) for i, part in kept}
        defaults = {name: None if default is MISSING else default for name, _, default in new_fields}
        return new_cls(**taken, **defaults)

    values = st.tuples(*(part.values for part in parts)).map(lambda values: old_cls(*values))
    return Shape(old_cls, new_cls, values, to_new)


FLAVORS = st.sampled_from(["namedtuple", "dataclass", "struct"])


def make(flavor: str, fields: list[tuple[str, Any, Any]]) -> Any:
    if flavor == "namedtuple":
        cls = NamedTuple("Record", [(name, of) for name, of, _ in fields])  # type: ignore[misc]
        defaults = [default for _, _, default in fields if default is not MISSING]
        cls.__new__.__defaults__ = tuple(defaults)
        cls._field_defaults = {name: default for name, _, default in fields if default is not MISSING}
        return cls
    given = [(name, of) if default is MISSING else (name, of, default) for name, of, default in fields]
    if flavor == "struct":
        return msgspec.defstruct("Record", given)
    given = [f if len(f) == 2 else (f[0], f[1], dataclasses.field(default=f[2])) for f in given]
    return dataclasses.make_dataclass("Record", given)


def containers(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    def listed(s: Shape) -> Shape:
        return Shape(list[s.old], list[s.new], st.lists(s.values, max_size=3), lambda v: [s.convert(x) for x in v])

    def mapped(s: Shape) -> Shape:
        values = st.dictionaries(st.text(max_size=2), s.values, max_size=3)
        return Shape(dict[str, s.old], dict[str, s.new], values, lambda v: {k: s.convert(x) for k, x in v.items()})

    def maybe(s: Shape) -> Shape:
        values = st.none() | s.values
        return Shape(Optional[s.old], Optional[s.new], values, lambda v: None if v is None else s.convert(v))

    def made_optional(s: Shape) -> Shape:
        return Shape(s.old, Optional[s.new], s.values, s.convert)

    return (
        records(inner)
        | st.builds(listed, inner)
        | st.builds(mapped, inner)
        | st.builds(maybe, inner)
        | st.builds(made_optional, inner)
    )


SHAPES = st.recursive(LEAVES, containers, max_leaves=6)


@examples(50)
@given(st.data())
def test_values_become_what_python_makes_of_them(data):
    shape = data.draw(records(SHAPES))
    values = data.draw(st.lists(shape.values, max_size=6))
    assert convert(values, shape.old, shape.new) == [shape.convert(value) for value in values]


@examples(40)
@given(st.data())
def test_a_type_becomes_itself_without_conversion(data):
    shape = data.draw(SHAPES)
    for of in (shape.old, shape.new):
        found = evolve(type_of(of).describe(), type_of(of))
        assert isinstance(found, Evolution)
        assert found.identical
        assert not found.changes


def test_defaults_that_are_made_anew_are_made_once_for_a_restore():
    made = iter(range(10))

    @dataclasses.dataclass
    class Counted:
        a: int
        n: int = dataclasses.field(default_factory=lambda: next(made))

    evolved = convert([Pair(1, "x"), Pair(2, "y")], Pair, Counted)
    assert [each.a for each in evolved] == [1, 2]
    assert len({each.n for each in evolved}) == 1


def test_saved_records_of_one_name_and_different_types_are_told_apart():
    def pair(of: Any) -> Any:
        return make("namedtuple", [("x", of, MISSING)])

    numbers, texts = pair(int), pair(str)
    value = [(numbers(1), texts("a"))]
    assert convert(value, tuple[numbers, texts], tuple[pair(float), texts]) == [((1.0,), ("a",))]


def test_a_sliced_column_is_converted():
    old, new = type_of(list[int]), type_of(list[float])
    found = evolve(old.describe(), new)
    assert isinstance(found, Evolution)
    array = old.to_arrow([[1], [2, 3], [4]]).slice(1, 2)
    assert new.from_columns(convert_columns([array], old, new, found.step)) == [[2.0, 3.0], [4.0]]
    assert np.array_equal(array.offsets.to_numpy(), [1, 3, 4])
    assert isinstance(new, TypeInformation)
