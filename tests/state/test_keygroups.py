"""Key groups: one hash for a key however it travels, and every key group owned by exactly one subtask."""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.errors import TypeNotSupported
from forkpoint.state import hash_column, key_group, key_group_range, key_hash, subtask_of
from forkpoint.types import TypeInformation, Types, type_of
from forkpoint.types.keys import key_form


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


longs = st.integers(-(2**63), 2**63 - 1)
KEY_TYPES: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.LONG(), longs),
    (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    (Types.BYTE(), st.integers(-128, 127)),
    (Types.STRING(), st.text(max_size=5)),
    (Types.BYTES(), st.binary(max_size=5)),
    (Types.BOOLEAN(), st.booleans()),
    (Types.DOUBLE(), st.floats()),
    (Types.FLOAT(), st.floats(width=32)),
    (Types.UUID(), st.uuids()),
    (Types.SQL_DATE(), st.dates()),
    (Types.BIG_INT(), st.integers()),
    (Types.ANY(), st.none() | longs | st.text(max_size=3) | st.tuples(longs, st.text(max_size=3))),
    (type_of(int | None), st.none() | longs),
    (type_of(str | None), st.none() | st.text(max_size=3)),
    (type_of(Level), st.sampled_from(list(Level))),
    (type_of(Size), st.sampled_from(list(Size))),
    (Types.DOUBLE(), st.floats() | st.integers(-9, 9)),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), st.tuples(longs, st.text(max_size=3))),
]


@pytest.mark.parametrize(("key_type", "values"), KEY_TYPES, ids=lambda p: str(getattr(p, "arrow_type", "")))
@given(data=st.data())
def test_a_column_hashes_like_its_elements(
    key_type: TypeInformation, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    keys = data.draw(st.lists(values, max_size=12).map(lambda v: v + v[:3]))
    key_type = key_form(key_type)
    expected = [key_hash(key, key_type) for key in keys]
    column = key_type.to_arrow(keys)
    found = hash_column(column, key_type)
    assert (found.dtype, found.tolist()) == (np.uint32, expected)
    half = len(keys) // 2
    assert hash_column(pa.chunked_array([column[:half], column[half:]], column.type), key_type).tolist() == expected


# From an implementation of its own, after the published definitions of splitmix64, CRC-32 and msgpack.
LONG_HASHES = [3793791033, 2433363436, 3839455607, 11161834]
STRING_HASHES = [3567870869, 2960843343, 2479544914, 2068004757]
TUPLE_HASH = 3359938742


def test_hashes_are_those_of_saved_state() -> None:
    # Written down: if one of these changes, no saved state can be found any more.
    assert [key_hash(key, Types.LONG()) for key in (0, 1, -1, 2**62)] == LONG_HASHES
    assert [key_hash(key, Types.STRING()) for key in ("", "a", "user-1", "ü")] == STRING_HASHES
    assert key_hash((1, "a"), Types.TUPLE([Types.LONG(), Types.STRING()])) == TUPLE_HASH


def test_integers_hash_alike_whatever_their_width() -> None:
    narrow, wide = pa.array([-3, 0, 100], pa.int8()), pa.array([-3, 0, 100], pa.int64())
    assert hash_column(narrow, Types.BYTE()).tolist() == hash_column(wide, Types.LONG()).tolist()
    assert key_hash(-3, Types.BYTE()) == key_hash(-3, Types.LONG())


def test_blocks_of_a_long_column_are_hashed_alike() -> None:
    keys = np.arange(-20_000, 20_000)
    assert hash_column(pa.array(keys), Types.LONG()).tolist() == [key_hash(int(k), Types.LONG()) for k in keys]


@pytest.mark.parametrize("key_type", [Types.LONG(), Types.STRING()], ids=str)
def test_a_dictionary_column_hashes_like_a_plain_one(key_type: TypeInformation) -> None:
    plain = key_type.to_arrow([5, 6, 5, 7] if key_type == Types.LONG() else ["x", "y", "x", "z"])
    assert hash_column(plain.dictionary_encode(), key_type).tolist() == hash_column(plain, key_type).tolist()


def test_zero_and_minus_zero_keep_their_own_hashes() -> None:
    column = pa.array([0.0, -0.0, math.nan, 0.0])
    assert hash_column(column, Types.DOUBLE()).tolist() == [key_hash(key, Types.DOUBLE()) for key in (0.0, -0.0, math.nan, 0.0)]


def test_a_slice_of_a_column_hashes_like_its_elements() -> None:
    column = pa.array(["a", "b", "c", "d", "b"])[1:4]
    assert hash_column(column, Types.STRING()).tolist() == [key_hash(key, Types.STRING()) for key in "bcd"]


def test_hashes_spread_over_the_key_groups() -> None:
    for column, key_type in (
        (pa.array(range(100_000)), Types.LONG()),
        (pa.array(range(0, 100_000 * 128, 128)), Types.LONG()),
        (pa.array([f"user-{i}" for i in range(100_000)]), Types.STRING()),
    ):
        counts = np.bincount(key_group(hash_column(column, key_type), 128), minlength=128)
        assert len(counts) == 128
        assert counts.min() > 100_000 / 128 * 0.8
        assert counts.max() < 100_000 / 128 * 1.2


parallelisms = st.integers(1, 40)
max_parallelisms = st.integers(1, 32768)


@given(parallelisms, max_parallelisms)
def test_every_key_group_is_in_the_range_of_the_subtask_that_owns_it(parallelism: int, max_parallelism: int) -> None:
    end = 0
    for subtask in range(parallelism):
        start, stop = key_group_range(subtask, parallelism, max_parallelism)
        assert start == end
        assert all(subtask_of(kg, parallelism, max_parallelism) == subtask for kg in {start, stop - 1} if start < stop)
        end = stop
    assert end == max_parallelism


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1), parallelisms, max_parallelisms)
def test_arrays_and_single_values_agree(hashes: list[int], parallelism: int, max_parallelism: int) -> None:
    groups = key_group(np.array(hashes, np.uint32), max_parallelism)
    assert groups.tolist() == [key_group(h, max_parallelism) for h in hashes]
    owners = subtask_of(groups, parallelism, max_parallelism)
    assert owners.tolist() == [subtask_of(kg, parallelism, max_parallelism) for kg in groups.tolist()]


def test_a_key_that_does_not_fit_its_type_is_refused() -> None:
    for key, key_type in ((None, Types.LONG()), ("5", Types.LONG()), (1.5, Types.LONG()), (object(), Types.ANY())):
        with pytest.raises(TypeNotSupported):
            key_hash(key, key_type)


def test_a_column_that_does_not_fit_its_type_is_refused() -> None:
    for column, key_type in (
        (pa.array([1, None]), Types.LONG()),
        (pa.array(["a", None]), Types.STRING()),
        (pa.array([1.5]), Types.LONG()),
        (pa.array(["x"]), Types.LONG()),
    ):
        with pytest.raises(TypeNotSupported):
            hash_column(column, key_type)


def test_a_column_of_whole_floats_hashes_like_the_integers_it_holds() -> None:
    assert hash_column(pa.array([1.0, 2.0]), Types.LONG()).tolist() == [key_hash(key, Types.LONG()) for key in (1, 2)]
