"""Snapshots: read back whole or by key groups, and checked as far as they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.errors import SavepointCorrupt
from forkpoint.state import (
    OPERATOR_KG,
    Changes,
    operator_key,
    read_snapshot,
    read_snapshot_columns,
    state_key,
    write_changes,
    write_snapshot,
)
from forkpoint.state.arrow_file import SNAPSHOT, ArrowFile
from forkpoint.state.dict_store import DictStore

Entries = list[tuple[bytes, bytes]]


def read(data: bytes, start: int, stop: int) -> Entries:
    return [
        (key, value)
        for piece in read_snapshot(data, start, stop, "snapshots/7/1-a.arrow")
        for key, value in zip(piece.keys, piece.values, strict=True)
        if value is not None
    ]


ENTRIES = sorted((state_key(i % 64, 1, b"%06d" % i), b"value-%d" % i) for i in range(60_000))
ENTRIES += [(operator_key(1, 2, i), b"operator") for i in range(3)]
SNAPSHOT_FILE = write_snapshot(ENTRIES)


@given(st.dictionaries(st.binary(min_size=2, max_size=4), st.binary(max_size=5), max_size=30))
def test_what_is_written_comes_back(entries: dict[bytes, bytes]) -> None:
    assert read(write_snapshot(sorted(entries.items())), 0, OPERATOR_KG + 1) == sorted(entries.items())


@given(st.integers(0, 70), st.integers(0, 70))
def test_a_range_has_the_key_groups_asked_for(start: int, stop: int) -> None:
    low, high = start.to_bytes(2, "big"), stop.to_bytes(2, "big")
    assert read(SNAPSHOT_FILE, start, stop) == [(k, v) for k, v in ENTRIES if low <= k < high]


def test_operator_state_is_a_range_of_its_own() -> None:
    assert read(SNAPSHOT_FILE, OPERATOR_KG, OPERATOR_KG + 1) == ENTRIES[-3:]


def test_a_range_is_read_without_the_other_batches() -> None:
    file = ArrowFile(SNAPSHOT_FILE, SNAPSHOT, "snapshot")
    assert len(file.blocks) > 3
    data = bytearray(SNAPSHOT_FILE)
    data[file.blocks[0].offset + 100] ^= 1  # key group 0 is in the first batch only, 63 is not in it
    assert len(read(bytes(data), 63, 64)) == len(ENTRIES) // 64
    with pytest.raises(SavepointCorrupt, match=r"^snapshots/7/1-a.arrow is damaged: the checksum of batch 0 .* is 0x"):
        read(bytes(data), 0, 1)


def test_every_changed_byte_is_noticed_by_a_reader_of_everything() -> None:
    data = write_snapshot([(state_key(kg, 1, b"key"), b"value-%d" % kg) for kg in range(8)])
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(SavepointCorrupt, match=r"^snapshots/7/1-a.arrow is (damaged|cut short)"):
            read(bytes(damaged), 0, OPERATOR_KG + 1)
        with pytest.raises(SavepointCorrupt, match=r"^snapshots/7/1-a.arrow is (damaged|cut short)"):
            read(data[:position], 0, OPERATOR_KG + 1)


def test_large_values_are_cut_into_batches_by_size() -> None:
    entries = [(b"%06d" % i, bytes([i]) * 1_000_000) for i in range(100)]
    data = write_snapshot(iter(entries))
    assert len(ArrowFile(data, SNAPSHOT, "snapshot").blocks) > 1
    assert read(data, 0, OPERATOR_KG) == entries


def test_entries_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="not in key order"):
        write_snapshot([(b"b", b""), (b"a", b"")])
    with pytest.raises(ValueError, match="not in key order"):
        write_snapshot([(b"%06d" % (i % 20_000), b"") for i in range(40_000)])


def test_a_snapshot_goes_from_store_to_store() -> None:
    one, two = DictStore(), DictStore()
    one.apply(Changes([k for k, _ in ENTRIES], [v for _, v in ENTRIES]), 4, 0)
    data = write_snapshot(one.scan(b"\0", b"\xff" * 20))
    two.load(read_snapshot_columns(data, 0, OPERATOR_KG + 1, "snapshot"), 4)
    assert (two.version, list(two.scan(b"\0", b"\xff" * 20))) == (4, ENTRIES)


def test_an_empty_store_is_a_snapshot_too() -> None:
    assert read(write_snapshot([]), 0, OPERATOR_KG + 1) == []


def test_a_changelog_is_not_a_snapshot() -> None:
    with pytest.raises(SavepointCorrupt, match="is a changelog, expected a snapshot"):
        read_snapshot(write_changes(Changes([b"a"], [b"b"])), 0, 1)
