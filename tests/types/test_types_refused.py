"""Values that a type cannot carry whole are refused where they are emitted, stored or read: subclasses, Literals."""

# ruff: noqa: UP007, UP045 - types that are put together by a program have these names

from __future__ import annotations

import dataclasses
import pickle
from typing import Any, Literal, NamedTuple, Optional, Union

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import forkpoint as fp
from forkpoint.connectors.formats.json import JsonRowDeserializationSchema
from forkpoint.connectors.formats.records import RecordConverter
from forkpoint.errors import TypeNotSupported
from forkpoint.testing import KeyedProcessHarness
from forkpoint.types import TypeInformation, Types, from_description, type_of


@dataclasses.dataclass
class Base:
    x: int


@dataclasses.dataclass
class Derived(Base):
    y: int = 0


@dataclasses.dataclass
class Alike(Base):
    """No further field: it is stored as its base class."""


@dataclasses.dataclass(frozen=True)
class FrozenBase:
    x: int


@dataclasses.dataclass(frozen=True)
class FrozenDerived(FrozenBase):
    y: int = 0


class StructBase(msgspec.Struct):
    x: int


class StructDerived(StructBase):
    y: int = 0


WAYS = {
    "accepted": lambda of, value: of.accept(value),
    "accepted in bulk": lambda of, value: of.accept_all([value])[0],
    "in a column": lambda of, value: of.from_arrow(of.to_arrow([value]))[0],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("of", "value"),
    [
        (Base, Derived(1, 2)),
        (FrozenBase, FrozenDerived(1, 2)),
        (StructBase, StructDerived(1, 2)),
        (Optional[Base], Derived(1, 2)),
        (list[Base], [Base(1), Derived(1, 2)]),
        (tuple[FrozenBase, ...], (FrozenDerived(1, 2),)),
        (dict[str, StructBase], {"a": StructDerived(1, 2)}),
        (tuple[int, Base], (1, Derived(1, 2))),
        (Union[Base, str], Derived(1, 2)),
    ],
)
def test_a_subclass_with_more_fields_is_refused(of, value, way):
    with pytest.raises(
        TypeNotSupported, match=r"fields that .*Base\(x: LONG\) does not have, and they would be lost: y; declare"
    ):
        WAYS[way](type_of(of), value)


@pytest.mark.parametrize("way", WAYS)
def test_a_union_of_the_classes_has_both(way):
    of = type_of(Union[Base, Derived])
    assert [WAYS[way](of, value) for value in (Base(1), Derived(1, 2))] == [Base(1), Derived(1, 2)]
    assert WAYS[way](type_of(Base), Alike(1)) == Base(1)


def test_state_names_what_it_refuses():
    class Keep(fp.KeyedProcessFunction):
        kept = fp.ValueStateDescriptor("kept", Base)

        def process_element(self, value, ctx):
            self.kept.update(Derived(1, 2))
            yield 1

    with pytest.raises(TypeNotSupported, match=r"kept.*they would be lost: y; declare Derived, or Base \| Derived"):
        KeyedProcessHarness(Keep(), key=lambda v: v, key_type=str).process_element("a", 1)


# -- Literal -----------------------------------------------------------------------------------------------------------


class Order(NamedTuple):
    status: Literal["new", "paid"]
    size: Optional[Literal[1, 2]] = None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("of", "good", "bad"),
    [
        (Literal["a", "b"], ["a", "b"], ["c", "", None, 1]),
        (Literal[1, 2], [1, 2], [3, "1"]),
        (Optional[Literal["a"]], ["a", None], ["b"]),
        (Union[Literal["a"], Literal["b"]], ["a", "b"], ["c"]),
        (Union[Literal["a"], str], ["a", "c"], [1]),
        (Union[str, Literal["a"]], ["a", "c"], [1]),
        (list[Literal["a"]], [["a", "a"], []], [["a", "b"]]),
        (Order, [Order("new"), Order("paid", 2)], [Order("old"), Order("new", 3)]),  # type: ignore[arg-type]
    ],
)
def test_a_literal_takes_its_own_values_only(of, good, bad, way):
    for type in (type_of(of), pickle.loads(pickle.dumps(type_of(of)))):
        for value in good:
            assert WAYS[way](type, value) == value
        for value in bad:
            with pytest.raises(TypeNotSupported):
                WAYS[way](type, value)


def test_a_literal_is_stored_like_its_type():
    """So what was saved with it is read, and its values may change from one version of a program to the next."""
    of = type_of(Literal["a", "b"])
    assert of == Types.STRING()
    assert from_description(of.describe()) == Types.STRING()
    assert repr(of) == "Literal['a', 'b']"
    assert of.decode(Types.STRING().encode("old")) == "old"


@pytest.mark.parametrize("count", [1, 3000])  # over columns, too
def test_a_message_with_another_text_is_bad(count):
    schema = JsonRowDeserializationSchema(Order)
    lines = [b'{"status":"new","size":1}'] * count
    found = schema.deserialize_batch(pa.array([*lines, b'{"status":"lost"}', b'{"status":"paid","size":3}'], pa.binary()))
    assert [bad.index for bad in found.bad] == [count, count + 1]
    assert "status: 'lost' is not a value of Literal['new', 'paid']" in found.bad[0].problem
    assert isinstance(found.elements, pa.RecordBatch)
    assert found.elements.num_rows == count


def test_a_column_with_another_text_is_bad():
    of: TypeInformation[Any] = type_of(Order)
    batch = pa.RecordBatch.from_pydict({"status": ["new", "lost"], "size": [1, None]})
    assert RecordConverter(of).cast(batch) is None
    assert RecordConverter(of).cast(batch.slice(0, 1)) is not None
    _, problems = RecordConverter(of).convert(batch.to_pylist())
    assert [index for index, _ in problems] == [1]


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("of", "value"),
    [
        (float, 2**53 + 1),
        (float, np.int64(-(2**53) - 1)),
        (int, np.timedelta64(5, "ns")),
        (float, np.timedelta64(5, "ns")),
    ],
)
def test_a_number_that_would_not_be_exact_is_refused(of, value, way):
    with pytest.raises(TypeNotSupported):
        WAYS[way](type_of(of), value)


def test_a_longer_float_of_numpy_is_refused():
    with pytest.raises(TypeNotSupported, match="is not exact as a value of Python"):
        type_of(float).accept(np.longdouble("0.1"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("of", "value", "expected"),
    [
        (float, 2**53, 2.0**53),
        (float, np.float32(0.1), float(np.float32(0.1))),
    ],
)
def test_numbers_of_numpy_become_those_of_python(of, value, expected, way):
    made = WAYS[way](type_of(of), value)
    assert (type(made), made) == (type(expected), expected)
