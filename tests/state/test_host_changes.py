"""What a process leaves to the others of its host: read as it was written, or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from forkpoint.state import Changes, HostChanges, read_changes, write_changes


def put(**items: bytes | None) -> Changes:
    return Changes([key.encode() for key in items], list(items.values()))


@pytest.fixture
def host(tmp_path: Path) -> HostChanges:
    changes = HostChanges(tmp_path / "0.changes")
    changes.write(5, 1, "aa", write_changes(put(a=b"1", b=None)))
    changes.write(5, 1, "slower", write_changes(put(a=b"wrong")))
    changes.write(5, 2, "bb", write_changes(put(c=b"2")))
    return changes


def test_only_what_was_accepted_is_read_and_in_the_order_of_the_stages(host: HostChanges, tmp_path: Path) -> None:
    assert host.read(5) is None
    host.accept(5, {2: "bb", 1: "aa"})
    host.accept(5, {2: "bb", 1: "aa"})  # each task of the next epoch says so
    assert HostChanges(tmp_path / "0.changes").read(5) == [put(a=b"1", b=None), put(c=b"2")]
    assert host.read(4) is host.read(6) is None


def test_an_attempt_of_another_host_is_missing(host: HostChanges) -> None:
    host.accept(5, {1: "aa", 2: "elsewhere"})
    assert host.read(5) is None


def test_any_damage_counts_as_missing(host: HostChanges, tmp_path: Path) -> None:
    host.accept(5, {1: "aa", 2: "bb"})
    for name in ("5-1-aa.arrow", "5-2-bb.arrow", "5.accepted"):
        place = tmp_path / "0.changes" / name
        whole = place.read_bytes()
        for cut in range(0, len(whole), 7):
            place.write_bytes(whole[:cut])
            assert host.read(5) is None, (name, cut)
        if name.endswith(".arrow"):
            for at in range(0, len(whole), 5):
                place.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
                assert host.read(5) is None or read_changes(place.read_bytes()) == read_changes(whole), (name, at)
        place.write_bytes(whole)
    assert host.read(5) is not None


def test_files_are_removed_up_to_an_epoch_also_those_of_rejected_and_killed_attempts(host: HostChanges, tmp_path: Path) -> None:
    host.accept(5, {1: "aa", 2: "bb"})
    (tmp_path / "0.changes" / "5.killed-before-its-rename").write_bytes(b"")
    host.write(10, 1, "cc", write_changes(put(a=b"2")))
    host.remove(9)
    assert os.listdir(tmp_path / "0.changes") == ["10-1-cc.arrow"]


def test_files_are_private(host: HostChanges, tmp_path: Path) -> None:
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (tmp_path / "0.changes").iterdir())


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "full"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    yield place
    subprocess.check_call(["umount", place])


def test_a_full_disk_costs_only_the_sharing(full_disk: Path) -> None:
    host = HostChanges(full_disk / "0.changes")
    host.write(1, 1, "aa", write_changes(put(a=os.urandom(100_000))))
    assert os.listdir(full_disk / "0.changes") == []  # not a part of it
    (full_disk / "filled").write_bytes(b"")
    with pytest.raises(OSError, match="No space left"):
        (full_disk / "filled").write_bytes(b"x" * 100_000)
    host.accept(1, {1: "aa"})
    assert host.read(1) is None
    host.remove(1)
    HostChanges(full_disk / "1.changes").write(1, 1, "bb", b"x")
