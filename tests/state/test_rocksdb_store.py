"""What is particular to RocksDB: one process at a time, threads that do not survive a fork."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
from pathlib import Path

import pytest

from forkpoint.errors import StorageError
from forkpoint.state import Changes, destroy_store
from forkpoint.state.rocksdb_store import RocksDbStore
from programs import Python

KEYS = [b"%06d" % i for i in range(3000)]


def full(value: bytes) -> Changes:
    return Changes(list(KEYS), [value] * len(KEYS))


def child(code: str, path: Path) -> subprocess.Popen[str]:
    prelude = (
        "import os, signal, sys\n"
        "from forkpoint.state import Changes, change_columns\n"
        "from forkpoint.state.rocksdb_store import RocksDbStore\n"
        "KEYS = [b'%06d' % i for i in range(3000)]\n"
        "store = RocksDbStore(sys.argv[1])\n"
    )
    return Python(["-c", prelude + code, path], stdout=subprocess.PIPE, text=True)


def test_a_process_killed_after_apply_leaves_what_it_applied(tmp_path: Path) -> None:
    code = "store.apply(Changes(KEYS, [b'1'] * len(KEYS)), 1, 0)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    assert child(code, tmp_path / "store").wait() == -signal.SIGKILL
    store = RocksDbStore(tmp_path / "store")
    assert (store.version, set(store.get_many(KEYS))) == (1, {b"1"})
    store.close()


def test_a_load_that_was_killed_leaves_an_empty_store(tmp_path: Path) -> None:
    code = (
        "def chunks():\n"
        "    yield change_columns(Changes(KEYS, [b'1'] * len(KEYS)))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "store.load(chunks(), 9)\n"
    )
    assert child(code, tmp_path / "store").wait() == -signal.SIGKILL
    store = RocksDbStore(tmp_path / "store")
    assert (store.version, list(store.scan(b"0", b"9"))) == (0, [])
    store.close()


def test_a_store_in_use_by_another_process_is_refused(tmp_path: Path) -> None:
    process = child("print('open', flush=True)\nsys.stdin.read()\n", tmp_path / "store")
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    with pytest.raises(StorageError, match="in use by another process"):
        RocksDbStore(tmp_path / "store")
    process.kill()
    process.wait()
    RocksDbStore(tmp_path / "store").close()


def test_a_damaged_store_is_refused_until_it_is_destroyed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = RocksDbStore(path)
    store.apply(full(b"1"), 1, 0)
    store.close()
    (path / "CURRENT").write_bytes(b"nonsense")
    with pytest.raises(StorageError, match="cannot be used"):
        RocksDbStore(path)
    destroy_store(path)
    store = RocksDbStore(path)
    assert store.version == 0
    store.close()


def test_a_forked_child_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    store = RocksDbStore(tmp_path / "store")
    store.apply(full(b"1"), 1, 0)

    def work() -> None:
        with pytest.raises(StorageError, match="was forked from one that has used RocksDB"):
            store.get_many(KEYS)
        store.close()

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(20)
    assert process.exitcode == 0
    assert (store.version, set(store.get_many(KEYS))) == (1, {b"1"})
    store.close()


def test_a_forked_child_that_leaves_the_ordinary_way_ends(tmp_path: Path) -> None:
    code = (
        "store.apply(Changes(KEYS, [b'1'] * len(KEYS)), 1, 0)\n"
        "scan = store.scan(b'0', b'9'); next(scan)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    sys.exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(list(scan)), store.version)\n"
    )
    output, _ = child(code, tmp_path / "store").communicate(timeout=20)
    assert output == "7 2999 1\n"


def test_a_scan_open_during_a_fork_goes_on(tmp_path: Path) -> None:
    store = RocksDbStore(tmp_path / "store")
    store.apply(full(b"1"), 1, 0)
    scan = store.scan(b"0", b"9")
    first = next(scan)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert [first, *scan] == [(key, b"1") for key in KEYS]
    store.close()
