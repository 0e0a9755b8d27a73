"""Changelogs: what is written comes back in order, and no damage goes unnoticed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.errors import SavepointCorrupt
from forkpoint.state import (
    OPERATOR_KG,
    Changes,
    operator_key,
    read_changes,
    read_snapshot,
    state_key,
    write_changes,
    write_snapshot,
)

items = st.lists(st.tuples(st.binary(min_size=1, max_size=3), st.none() | st.binary(max_size=6)), max_size=25)


def of(pairs: list[tuple[bytes, bytes | None]]) -> Changes:
    return Changes([k for k, _ in pairs], [v for _, v in pairs])


def sliced(changes: Changes, start: int, stop: int) -> Changes:
    data = write_snapshot((key, value or b"") for key, value in zip(changes.keys, changes.values, strict=True))
    pieces = list(read_snapshot(data, start, stop))
    return Changes([k for piece in pieces for k in piece.keys], [v for piece in pieces for v in piece.values])


def as_dict(changes: Changes) -> dict[bytes, bytes | None]:
    return dict(zip(changes.keys, changes.values, strict=True))


@given(items)
def test_what_is_written_comes_back_sorted_with_the_last_value_of_each_key(
    pairs: list[tuple[bytes, bytes | None]],
) -> None:
    found = read_changes(write_changes(of(pairs)))
    assert (found.keys, as_dict(found)) == (sorted(dict(pairs)), dict(pairs))
    assert found == of(pairs).in_order()


@given(st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=2)), max_size=20), st.integers(0, 10), st.integers(0, 10))
def test_a_slice_has_the_key_groups_asked_for(pairs: list[tuple[int, bytes]], start: int, stop: int) -> None:
    changes = of([(state_key(kg, 1, key), b"v") for kg, key in pairs]).in_order()
    expected = sorted({state_key(kg, 1, key) for kg, key in pairs if start <= kg < stop})
    assert sliced(changes, start, stop).keys == expected


def test_operator_state_is_sliced_as_a_key_group_of_its_own() -> None:
    changes = of([(state_key(127, 1, b"k"), b"v"), (operator_key(1, 0, 0), b"o")])
    assert sliced(changes, OPERATOR_KG, OPERATOR_KG + 1).values == [b"o"]
    assert sliced(changes, 0, 128).values == [b"v"]


def test_many_entries_take_several_batches() -> None:
    changes = Changes([b"%08d" % i for i in range(150_000)], [None if i % 3 else b"v%d" % i for i in range(150_000)])
    assert read_changes(write_changes(changes)) == changes


def test_entries_of_a_hundred_megabytes_come_back() -> None:
    changes = Changes([b"a", b"b", b"c"], [b"\0" * 50_000_000, None, b"\1" * 50_000_000])
    assert read_changes(write_changes(changes)) == changes


def test_unequal_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="2 keys but 1 values"):
        Changes([b"a", b"b"], [b"1"])


SMALL = write_changes(of([(state_key(kg, 1, b"key"), None if kg == 3 else b"value-%d" % kg) for kg in range(8)]))
DAMAGED = re.compile(r"^changelog/7/1-2-a\.arrow is (damaged|cut short).*(0x[0-9a-f]{8}, expected 0x|, expected )")


def read_small(data: bytes) -> Changes:
    return read_changes(data, "changelog/7/1-2-a.arrow")


def test_every_changed_byte_is_noticed() -> None:
    for position in range(len(SMALL)):
        for bits in (0x01, 0x80, 0xFF):
            data = bytearray(SMALL)
            data[position] ^= bits
            with pytest.raises(SavepointCorrupt, match=DAMAGED):
                read_small(bytes(data))


@given(st.integers(0, len(SMALL) - 1), st.integers(1, 255), st.integers(0, len(SMALL) - 1), st.integers(1, 255))
def test_two_changed_bytes_are_noticed(a: int, a_bits: int, b: int, b_bits: int) -> None:
    data = bytearray(SMALL)
    data[a] ^= a_bits
    data[b] ^= b_bits
    if bytes(data) != SMALL:
        with pytest.raises(SavepointCorrupt, match=DAMAGED):
            read_small(bytes(data))


def test_every_truncation_and_extension_is_noticed() -> None:
    for length in range(len(SMALL)):
        with pytest.raises(SavepointCorrupt, match=DAMAGED):
            read_small(SMALL[:length])
        with pytest.raises(SavepointCorrupt, match=DAMAGED):
            read_small(SMALL[length:] if length else b"x" + SMALL)
    for more in (b"\0", SMALL[-1:], SMALL):
        with pytest.raises(SavepointCorrupt, match=DAMAGED):
            read_small(SMALL + more)


@given(st.binary(max_size=200))
def test_a_foreign_file_is_refused(data: bytes) -> None:
    with pytest.raises(SavepointCorrupt, match="cut short"):
        read_small(data)


def test_a_message_names_both_values() -> None:
    data = bytearray(SMALL)
    data[500] ^= 1
    with pytest.raises(SavepointCorrupt) as caught:
        read_small(bytes(data))
    found, expected = re.findall(r"0x[0-9a-f]{8}", str(caught.value))
    assert found != expected
    with pytest.raises(SavepointCorrupt, match=f"it has {len(SMALL) * 2} bytes, expected {len(SMALL)}"):
        read_small(SMALL + SMALL)


def test_a_snapshot_is_not_a_changelog() -> None:
    with pytest.raises(SavepointCorrupt, match="is a snapshot, expected a changelog"):
        read_small(write_snapshot([(b"a", b"b")]))
