"""Large rows of an exchange within a host, in files."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from forkpoint.errors import StorageUnavailable
from forkpoint.runtime.exchange.wire import COMMIT, ChunkRow
from forkpoint.spark import host_rows


def test_rows_arrive_whole_from_several_tasks(tmp_path: Path) -> None:
    """Small ones and control data as they are; a task without large rows makes no file."""
    directory = host_rows.exchange_directory(str(tmp_path), "7")
    large = host_rows.LARGE_BYTES
    tasks: list[list[ChunkRow]] = [
        [(0, 3, 5, b"a" * large), (1, 0, 6, b"b"), (1, 3, 7, b"c" * (3 * large)), (0, COMMIT, 0, b"d" * large)],
        [(0, 2, 8, os.urandom(2 * large))],
        [(1, 2, 9, b"small")],
    ]
    sent = [list(host_rows.left(rows, directory)) for rows in tasks]
    assert [sum(len(blob) > 1_000 for *_, blob in rows) for rows in sent] == [1, 0, 0]
    assert len(os.listdir(directory)) == 2
    assert [list(host_rows.fetched(rows, directory)) for rows in sent] == tasks
    host_rows.remove(directory)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageUnavailable, match=rf"^{tmp_path}: No space left on device. Free space there"):
        list(host_rows.left([(0, 3, 5, b"a" * host_rows.LARGE_BYTES)], host_rows.exchange_directory(str(tmp_path), "7")))


def test_a_row_whose_file_is_cut_short_is_no_row(tmp_path: Path) -> None:
    directory = host_rows.exchange_directory(str(tmp_path), "7")
    sent = list(host_rows.left([(0, 3, 5, b"a" * host_rows.LARGE_BYTES)], directory))
    (file,) = Path(directory).iterdir()
    os.truncate(file, 100)
    with pytest.raises(OSError, match="ends after 100 bytes"):
        list(host_rows.fetched(sent, directory))
