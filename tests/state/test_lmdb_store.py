"""What is particular to LMDB: the map, processes that die, forks, damaged files."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from forkpoint.errors import StorageError
from forkpoint.state import Changes, change_columns, destroy_store
from forkpoint.state import lmdb_store as module
from forkpoint.state.lmdb_store import LmdbStore
from programs import Python

SMALL = 1 << 16
KEYS = [b"%06d" % i for i in range(3000)]


def full(value: bytes) -> Changes:
    return Changes(list(KEYS), [value] * len(KEYS))


def child(code: str, *args: object) -> subprocess.Popen[str]:
    """A process of its own that runs `code` with KEYS and LmdbStore at hand."""
    prelude = (
        "import os, signal, sys\n"
        "from forkpoint.state import Changes, change_columns\n"
        "from forkpoint.state import lmdb_store as module\n"
        "from forkpoint.state.lmdb_store import LmdbStore\n"
        "KEYS = [b'%06d' % i for i in range(3000)]\n"
    )
    return Python(["-c", prelude + code, *args], stdout=subprocess.PIPE, text=True)


def test_the_map_grows_by_itself(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store", map_size=SMALL)
    for version in range(1, 6):
        store.apply(Changes([b"%d-%d" % (version, i) for i in range(1000)], [b"x" * 500] * 1000), version, version - 1)
    store.apply(Changes([b"big"], [b"y" * 5_000_000]), 6, 5)
    assert store.version == 6
    assert len(list(store.scan(b"0", b"9"))) == 5000
    assert store.get_many([b"big"]) == [b"y" * 5_000_000]
    store.close()


def test_a_load_grows_the_map(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store", map_size=SMALL)
    chunks = (Changes([b"%d-%04d" % (c, i) for i in range(1000)], [b"x" * 200] * 1000) for c in range(5))
    store.load(map(change_columns, chunks), 3)
    assert (store.version, len(list(store.scan(b"0", b"9")))) == (3, 5000)
    store.close()


def test_a_scan_goes_on_when_the_map_grows_under_it(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store", map_size=1 << 20)
    store.apply(full(b"v"), 1, 0)
    scan = store.scan(b"0", b"9")
    first = next(scan)
    store._handle._resize(1 << 22)
    assert [first, *scan] == [(key, b"v") for key in KEYS]
    store.close()


def test_a_scan_does_not_mix_versions_when_the_map_grows_under_it(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store", map_size=1 << 18)
    store.apply(full(b"old"), 1, 0)
    scan = store.scan(b"0", b"9")
    next(scan)
    store.apply(full(b"n" * 1000), 2, 1)  # needs a larger map, which ends the scan's transaction
    with pytest.raises(StorageError, match="from version 1 to 2 during a scan"):
        list(scan)
    store.close()


def test_a_map_enlarged_by_another_process_is_taken_over(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store", map_size=SMALL)
    store.apply(Changes([b"a"], [b"1"]), 1, 0)
    other = child(
        "s = LmdbStore(sys.argv[1], map_size=1 << 16)\ns.apply(Changes(KEYS, [b'x' * 1000] * len(KEYS)), 2, 1)\n",
        tmp_path / "store",
    )
    assert other.wait() == 0
    assert store.version == 2
    assert store.get_many([KEYS[5], b"a"]) == [b"x" * 1000, b"1"]
    store.apply(full(b"y"), 3, 2)
    assert store.version == 3
    store.close()


def test_a_process_killed_between_the_puts_and_the_version_leaves_neither(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store")
    store.apply(full(b"1"), 1, 0)
    code = (
        "module._put_state = lambda *args: os.kill(os.getpid(), signal.SIGKILL)\n"
        "LmdbStore(sys.argv[1]).apply(Changes(KEYS, [b'2'] * len(KEYS)), 2, 1)\n"
    )
    assert child(code, tmp_path / "store").wait() == -signal.SIGKILL
    assert (store.version, set(store.get_many(KEYS))) == (1, {b"1"})
    store.apply(full(b"2"), 2, 1)  # the dead process had the writers' lock
    assert (store.version, set(store.get_many(KEYS))) == (2, {b"2"})
    store.close()


def test_a_process_killed_at_any_time_leaves_what_its_version_says(tmp_path: Path) -> None:
    code = (
        "s = LmdbStore(sys.argv[1])\n"
        "v = s.version\n"
        "print('open', flush=True)\n"
        "while True:\n"
        "    s.apply(Changes(KEYS, [b'%d' % (v + 1)] * len(KEYS)), v + 1, v)\n"
        "    v += 1\n"
    )
    rng, last = random.Random(5), 0
    for _ in range(6):
        process = child(code, tmp_path / "store")
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        time.sleep(0.02 + rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        store = LmdbStore(tmp_path / "store")
        version = store.version
        assert version > last
        assert set(store.get_many(KEYS)) == {b"%d" % version}
        store.close()
        last = version


def test_a_load_that_was_killed_reads_as_empty(tmp_path: Path) -> None:
    code = (
        "def chunks():\n"
        "    yield change_columns(Changes(KEYS, [b'1'] * len(KEYS)))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "LmdbStore(sys.argv[1]).load(chunks(), 9)\n"
    )
    assert child(code, tmp_path / "store").wait() == -signal.SIGKILL
    store = LmdbStore(tmp_path / "store")
    assert (store.version, store.get_many([KEYS[0]]), list(store.scan(b"0", b"9"))) == (0, [None], [])
    store.load([change_columns(full(b"2"))], 9)
    assert (store.version, set(store.get_many(KEYS))) == (9, {b"2"})
    store.close()


def test_a_zombie_cannot_apply_what_was_applied_or_comes_too_late(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store")
    store.apply(full(b"1"), 1, 0)
    zombie = child("LmdbStore(sys.argv[1]).apply(Changes(KEYS, [b'z'] * len(KEYS)), 1, 0)\n", tmp_path / "store")
    assert zombie.wait() == 0
    assert (store.version, set(store.get_many(KEYS))) == (1, {b"1"})
    store.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "store"
    store = LmdbStore(path)
    store.apply(full(b"1" * 50), 1, 0)
    store.apply(Changes(KEYS[::2], [None] * len(KEYS[::2])), 2, 1)
    store.close()
    return path


def test_a_file_cut_short_anywhere_is_refused_until_it_is_destroyed(sound: Path, tmp_path: Path) -> None:
    size = (sound / "data.mdb").stat().st_size
    for length in [1, 16, 100, 4095, 4096, 4097, 8191, *range(8192, size, size // 20), size - 4096, size - 1]:
        path = tmp_path / f"store-{length}"
        shutil.copytree(sound, path)
        os.truncate(path / "data.mdb", length)
        with pytest.raises(StorageError, match="cannot be used"):
            LmdbStore(path)
        destroy_store(path)
        store = LmdbStore(path)
        assert store.version == 0
        store.close()


def test_an_empty_data_file_is_an_empty_store(sound: Path, tmp_path: Path) -> None:
    shutil.copytree(sound, tmp_path / "store")
    os.truncate(tmp_path / "store" / "data.mdb", 0)
    store = LmdbStore(tmp_path / "store")
    assert store.version == 0
    store.close()


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "data.mdb").write_bytes(b"something else " * 5000)
    with pytest.raises(StorageError, match="cannot be used"):
        LmdbStore(tmp_path / "store")


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(StorageError, match="cannot be used"):
        LmdbStore(tmp_path / "store")


def test_files_are_never_shorter_than_their_header_says(tmp_path: Path) -> None:
    # LMDB leaves such files behind when pages are taken and freed in one transaction.
    def random_value() -> bytes | None:
        return None if rng.random() < 0.7 else rng.randbytes(rng.choice([1, 100, 1500, 3000, 20000]))

    for seed in range(20):
        path, rng = tmp_path / f"store-{seed}", random.Random(seed)
        store = LmdbStore(path)
        for version in range(1, 9):
            keys = rng.sample(KEYS[:300], rng.randrange(1, 300))
            store.apply(Changes(keys, [random_value() for _ in keys]), version, version - 1)
            assert (path / "data.mdb").stat().st_size >= store._handle._needed_size()
        store.close()
        LmdbStore(path).close()


def test_a_store_from_before_a_restart_of_the_machine_is_refused(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(sound, tmp_path / "store")
    monkeypatch.setattr(module, "_boot_id", lambda: b"another")
    with pytest.raises(StorageError, match="before the machine was restarted"):
        LmdbStore(tmp_path / "store")


def test_a_forked_child_uses_the_store_on_its_own(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store")
    store.apply(full(b"1"), 1, 0)
    scan = store.scan(b"0", b"9")
    first = next(scan)

    fork = multiprocessing.get_context("fork")
    scanned = fork.Event()  # a scan that goes on after a fork has to find the version with which it began

    def work() -> None:
        assert store._handle._open is None  # the parent's reader slots are not the child's
        other = LmdbStore(tmp_path / "store")
        assert (store.version, other.version) == (1, 1)
        assert scanned.wait(20)
        store.apply(Changes([b"from"], [b"child"]), 2, 1)
        assert other.get_many([b"from"]) == [b"child"]

    process = fork.Process(target=work)
    process.start()
    assert [first, *scan][0] == (KEYS[0], b"1")
    scanned.set()
    process.join(20)
    assert process.exitcode == 0
    assert (store.version, store.get_many([b"from"])) == (2, [b"child"])
    store.close()


def test_a_scan_open_during_a_fork_goes_on(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store")
    store.apply(full(b"1"), 1, 0)
    scan = store.scan(b"0", b"9")
    first = next(scan)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert [first, *scan] == [(key, b"1") for key in KEYS]
    store.close()


def test_a_store_removed_by_another_process_is_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "store"
    old = LmdbStore(path)
    old.apply(full(b"1"), 1, 0)
    assert child("from forkpoint.state import destroy_store\ndestroy_store(sys.argv[1])\n", path).wait() == 0
    new = LmdbStore(path)
    assert (old.version, new.version) == (1, 0)
    new.apply(full(b"2"), 5, 0)
    assert set(old.get_many(KEYS)) == {b"1"}
    old.close()
    assert set(new.get_many(KEYS)) == {b"2"}
    new.close()


def test_threads_share_a_store_while_its_map_grows(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store", map_size=SMALL)
    store.apply(full(b"0" * 10), 1, 0)
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                assert len(set(store.get_many(KEYS))) == 1
        except BaseException as e:
            failures.append(e)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for version in range(2, 20):
        store.apply(full(b"%d" % version * 100), version, version - 1)
    done.set()
    for reader in readers:
        reader.join()
    assert failures == []
    store.close()


def test_the_last_user_closes_the_environment(tmp_path: Path) -> None:
    one, two = LmdbStore(tmp_path / "store"), LmdbStore(tmp_path / "store")
    handle = one._handle
    one.close()
    assert handle._open is not None
    two.close()
    assert handle._open is None


def test_what_is_written_after_clear_is_whole() -> None:
    """In a process of its own: where the unnamed database was dropped, LMDB refused the commit or ended the process."""
    program = Path(__file__).with_name("store_lives.py")
    done = subprocess.run([sys.executable, str(program), "1", "6"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_clear_leaves_an_empty_store_of_version_0(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store")
    store.clear()
    for _ in range(3):
        store.apply(full(b"v"), 4, 0)
        store.clear()
        assert (store.version, list(store.scan(b"\0", b"\xff"))) == (0, [])
    store.close()
