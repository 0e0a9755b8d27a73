"""What holds for local disk only: crashes, full disks, directories."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest

from forkpoint.errors import AlreadyExists, StorageError
from forkpoint.storage.base import LocalStorage, open_storage


def all_entries(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_leaves_nothing_behind(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put("a/1", b"x")
    storage.put("a/1", b"y")
    storage.create("a/2", b"x")
    with pytest.raises(AlreadyExists):
        storage.create("a/2", b"y")
    assert all_entries(tmp_path) == ["a", "a/1", "a/2"]


def test_empty_directories_go_but_the_root_stays(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "root"))
    for path in ["a/b/1", "a/c/2", "d/e/3"]:
        storage.put(path, b"")
    storage.delete("a/b/1")
    storage.delete_prefix("d/e")
    assert all_entries(tmp_path / "root") == ["a", "a/c", "a/c/2"]
    storage.delete("a/c/2")
    assert all_entries(tmp_path) == ["root"]


def test_deleting_does_not_follow_links_out_of_the_root(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_bytes(b"x")
    storage = LocalStorage(str(tmp_path / "root"))
    storage.put("a/1", b"")
    (tmp_path / "root" / "a" / "link").symlink_to(tmp_path / "precious")
    storage.delete_prefix("a")
    assert (tmp_path / "precious" / "file").read_bytes() == b"x"


def test_a_path_is_a_file_or_a_directory(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put("a/b", b"")
    for path in ["a", "a/b/c", "a/b/c/d"]:
        with pytest.raises(StorageError, match=path):
            storage.put(path, b"")
    assert all_entries(tmp_path) == ["a", "a/b"]


def test_writers_and_deleters_share_a_directory(tmp_path: Path) -> None:
    """A directory that gets empty is removed; a writer that was about to use it makes it again."""
    storage = LocalStorage(str(tmp_path))
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for _ in range(150):
                storage.create(f"x/y/{name}", b"1")
                storage.delete(f"x/y/{name}")
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert storage.list() == []


WRITER = """
import itertools, sys
from forkpoint.storage.base import open_storage
storage = open_storage(sys.argv[1])
for number in itertools.count():
    storage.create(f"d/{number}", b"x" * 3_000_000)
    print(number, flush=True)
"""


def test_a_killed_writer_leaves_whole_files_only(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    for delay in (0.0, 0.002, 0.005):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            reported = int(writer.stdout.readline())
            time.sleep(delay)
            writer.send_signal(signal.SIGKILL)
            reported = max([reported, *(int(line) for line in writer.stdout.read().split())])
        names = storage.list("d")
        assert {f"d/{number}" for number in range(reported + 1)} <= set(names)
        assert all(storage.size(name) == 3_000_000 for name in names)
        storage.delete_prefix("d")
    assert all_entries(tmp_path) == []  # delete_prefix takes leftovers along


def test_old_temporary_files_are_found_and_removed(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put("a/kept", b"")
    for name in ("old", "new"):
        (tmp_path / "a" / f".fp-tmp-{name}").write_bytes(b"half")
    long_ago = time.time() - 7200
    for name in ("kept", ".fp-tmp-old"):
        os.utime(tmp_path / "a" / name, (long_ago, long_ago))
    assert storage.list() == ["a/kept"]
    assert storage.temporary_files(timedelta(hours=1)) == [("a/.fp-tmp-old", 4)]
    storage.remove_temporary("a/.fp-tmp-old")
    assert all_entries(tmp_path) == ["a", "a/.fp-tmp-new", "a/kept"]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"may not mount a small file system: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_full_disk_is_named_with_the_remedy(tiny_disk: Path) -> None:
    storage = LocalStorage(str(tiny_disk))
    storage.put("old", b"x" * 40_000)
    for write in (storage.put, storage.create):
        with pytest.raises(StorageError, match=rf"{tiny_disk}/d/new on host \S+: No space left.*Free space"):
            write("d/new", b"x" * 40_000)
    assert storage.list() == ["old"]
    assert not list(tiny_disk.glob("**/.fp-tmp-*"))
    storage.delete("old")
    storage.create("d/new", b"x" * 40_000)
    assert storage.size("d/new") == 40_000


LIMITED = """
import resource, signal, sys
from forkpoint.errors import StorageError
from forkpoint.storage.base import open_storage
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    open_storage(sys.argv[1]).create("d/new", b"x" * 20_000)
except StorageError as error:
    print(error)
"""


def test_a_write_cut_short_leaves_no_file(tmp_path: Path) -> None:
    shown = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True).stdout
    assert f"{tmp_path}/d/new on host {socket.gethostname()}: File too large" in shown
    assert "Free space" in shown
    assert all_entries(tmp_path) == ["d"]


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file/a"):
        LocalStorage(str(tmp_path / "file")).put("a", b"")


def test_plain_paths_and_file_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "with space#%20ü"
    assert open_storage(odd) == open_storage(str(odd)) == open_storage(odd.as_uri()) == LocalStorage(str(odd))
    assert open_storage(LocalStorage(str(odd)).url) == LocalStorage(str(odd))
    monkeypatch.chdir(tmp_path)
    assert open_storage("below/../state") == LocalStorage(str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_storage("~/state") == LocalStorage(str(tmp_path / "state"))
