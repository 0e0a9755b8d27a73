"""Numbers in bulk are written as msgspec writes them, and read whatever way they were written."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import NamedTuple, Optional

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_counts import examples
from forkpoint.runtime.columnar import msgpack
from forkpoint.runtime.columnar.keys import KeySet, read_timers
from forkpoint.runtime.columnar.leaves import Codec, to_columns
from forkpoint.runtime.columnar.msgpack import decode_rows, layout_of, padded
from forkpoint.state import state_key, timer_key
from forkpoint.types import Instant, Types, type_of


class Pair(NamedTuple):
    number: int
    weight: float


@dataclass
class Whole:
    pair: Pair
    flag: bool
    small: int


Wide = NamedTuple("Wide", [(f"n{i}", int) for i in range(17)])  # an array of more than 15

edges = [s * (2**b + d) for b in (0, 5, 7, 8, 15, 16, 31, 32, 62) for d in (-1, 0, 1) for s in (1, -1)]
longs = st.one_of(st.sampled_from(edges), st.integers(-(2**63), 2**63 - 1), st.integers(-200, 200))
wholes = st.builds(Whole, st.builds(Pair, longs, st.floats()), st.booleans(), longs)


@examples(50)
@given(st.lists(wholes, min_size=1, max_size=20))
def test_records_of_numbers(values):
    codec = Codec(type_of(Whole))
    assert codec._layout is not None
    raw = [codec.type.encode(value) for value in values]
    assert codec.encode_columns(codec.type.to_columns(values)) == raw
    assert codec.encode_columns(codec.columns(raw)) == raw
    binary = codec.encode_binary(codec.columns(raw))
    assert binary is None or binary.to_pylist() == raw


def test_more_numbers_than_are_encoded_at_once():
    """Each block ends with a number of another length than it began with, and the last block has one value."""
    codec = Codec(type_of(Pair))
    numbers = [edges[(index * index) % len(edges)] for index in range(2 * msgpack._BLOCK + 1)]
    values = [Pair(number, float(number)) for number in numbers]
    assert codec.encode_columns(codec.type.to_columns(values)) == list(map(codec.type.encode, values))


class Address(NamedTuple):
    street: Optional[str]  # noqa: UP045
    number: int


@dataclass
class Gift:
    given: Optional[bool] = None  # noqa: UP045
    price: Optional[float] = None  # noqa: UP045


MIXED = type_of(
    tuple[
        Address | None,
        list[str | None],
        set[str] | None,
        Gift | None,
        bytes,
        list[Address] | None,
        set[float],
        list[list[int]],
        tuple[int, ...] | None,
        Wide,
        str,
        date | None,
        list[Instant | None],
        datetime,
        time,
    ]
)
texts = st.one_of(st.text(max_size=3), st.integers(0, 70_000).map(lambda n: "é" * (n if n < 300 else n // 2)))
addresses = st.builds(Address, st.none() | texts, longs)
floats = st.floats(allow_nan=False).map(lambda x: x + 0.0)
mixed = st.tuples(
    st.none() | addresses,
    st.lists(st.none() | texts, max_size=20),
    st.none() | st.sets(st.text(max_size=2)),
    st.none() | st.builds(Gift, st.none() | st.booleans(), st.none() | floats),
    st.binary(max_size=300),
    st.none() | st.lists(addresses, max_size=3),
    st.sets(floats),
    st.lists(st.lists(longs, max_size=40), max_size=2),
    st.none() | st.lists(longs).map(tuple),
    st.builds(Wide._make, st.tuples(*[longs] * 17)),
    texts,
    st.none() | st.dates(),
    st.lists(st.none() | st.datetimes(timezones=st.just(UTC)), max_size=3),
    st.datetimes(),
    st.times(),
)


@examples(20)
@given(st.lists(mixed, min_size=1, max_size=8))
def test_texts_lists_sets_and_none(values):
    codec = Codec(MIXED)
    assert codec._writable
    raw = [MIXED.encode(value) for value in values]
    leaves = codec.leaves_of(MIXED.to_columns(values))
    assert codec.encode(leaves) == raw
    assert MIXED.from_columns(to_columns(leaves, MIXED)) == values


@examples(30)
@given(st.lists(st.tuples(longs, st.none() | st.datetimes(), texts, floats, st.booleans()), min_size=1, max_size=20))
def test_keys_of_numbers_times_and_texts_are_read_as_columns(values):
    of = type_of(tuple[int, datetime | None, str, float, bool])
    raw = [of.encode(value) for value in values]
    found = decode_rows(of, raw)
    assert (found is None) == any(at is None or len(text.encode()) > 31 for _, at, text, _, _ in values)
    assert found is None or found == of.to_columns(values)


def test_ints_in_a_field_of_floats_and_none_are_read_one_by_one():
    codec = Codec(type_of(tuple[int, Optional[float]]))  # noqa: UP045
    raw = [codec.type.encode(value) for value in [(1, 2.5), (2, None), (3, 4)]]
    assert [c.to_pylist() for c in codec.columns(raw)] == [[1, 2, 3], [2.5, None, 4.0]]
    assert codec.encode_columns(codec.columns(raw)) == [*raw[:2], codec.type.encode((3, 4.0))]


@pytest.mark.parametrize("type", [str, list[int], tuple[int, str], Types.ANY(), Types.FLOAT(), Types.BIG_INT()])
def test_types_of_more_than_numbers_have_no_layout(type):
    assert layout_of(type_of(type)) is None


@examples(25)
@given(
    st.one_of(
        st.lists(longs, min_size=1, max_size=9, unique=True),
        st.lists(st.text(max_size=9), min_size=1, max_size=9, unique=True),
    )
)
def test_names_are_those_of_single_keys(keys):
    type = type_of(keys[0].__class__)
    some = KeySet(type.to_arrow(keys), type, 128)
    groups, encoded = some.groups.tolist(), list(map(type.encode, keys))
    spaces = pa.array([b"w%d" % i for i in range(len(keys))], pa.binary())
    which = np.arange(len(keys))
    assert some.names(7, which, spaces) == [
        state_key(g, 7, k, b"w%d" % i) for i, (g, k) in enumerate(zip(groups, encoded, strict=True))
    ]
    times = which * 5 - 10
    timers = some.timers(9, times, which, spaces)
    assert timers == [
        timer_key(g, 9, t, k, b"w%d" % i) for i, (g, k, t) in enumerate(zip(groups, encoded, times.tolist(), strict=True))
    ]
    found = read_timers(timers)
    assert (found[0].tolist(), found[1], found[2]) == (times.tolist(), encoded, spaces.to_pylist())


def test_texts_in_place():
    """Of every length of header; what is not a text, or not whole, is left to msgspec."""
    texts = ["", "é", "x" * 31, "y" * 32, "z" * 255, "ü" * 200, "w" * 70_000]
    raw = [Types.STRING().encode(text) for text in texts]
    ends = np.cumsum([len(each) for each in raw])
    starts = ends - [len(each) for each in raw]
    codec, data = Codec(Types.STRING()), padded(b"".join(raw))
    (found,) = codec.columns_at(data, starts, ends) or ()
    assert found.to_pylist() == texts
    assert codec.columns_at(data, starts[:1], ends[:1] + 1) is None
    for wrong in (b"\xc0", b"\x01", b"\xa2a", b"\xa1\xff"):
        assert codec.columns_at(padded(wrong), np.array([0]), np.array([len(wrong)])) is None
