"""The storage contract, the same for every implementation."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, Event, Thread
from typing import Any

import pytest

from cluster.mini_hadoop import MiniHadoop
from forkpoint.errors import AccessDenied, AlreadyExists, ConfigError, NotFound, StorageError, StorageUnavailable
from forkpoint.storage.base import LocalStorage, Storage, open_storage
from forkpoint.storage.hdfs import HdfsStorage
from forkpoint.storage.object_storage import ObjectStorage

BAD_PATHS = [
    "",
    "/etc/passwd",
    "..",
    "a/../../b",
    "a/..",
    ".",
    "a/./b",
    "a//b",
    "a/",
    "a\\b",
    "a\nb",
    "\ud800",
    "a/.fp-tmp-1",
]


def test_is_a_storage(storage: Storage) -> None:
    assert isinstance(storage, Storage)


def test_reads_what_was_written(storage: Storage) -> None:
    storage.put("a/b/c.bin", b"\x00one")
    assert storage.read("a/b/c.bin") == b"\x00one"
    assert storage.size("a/b/c.bin") == 4
    assert storage.exists("a/b/c.bin")


def test_keeps_names_as_they_are(storage: Storage) -> None:
    names = ["a b/ü%20#1+~!?&=.json", "a!20b/x", "_x/.y"]
    if isinstance(storage, HdfsStorage):
        with pytest.raises(StorageError, match="has a colon, which HDFS does not allow"):
            storage.create("a:b", b"1")
    else:
        names.append("a:b")
    for name in names:
        storage.create(name, name.encode())
    assert storage.list() == sorted(names)
    assert [storage.read(name) for name in names] == [name.encode() for name in names]


def test_put_replaces(storage: Storage) -> None:
    storage.put("a", b"one, and longer")
    storage.put("a", b"two")
    assert storage.read("a") == b"two"
    assert storage.list() == ["a"]


def test_create_refuses_a_taken_name_and_keeps_the_content(storage: Storage) -> None:
    storage.create("checkpoints/1.json", b"first")
    with pytest.raises(AlreadyExists, match=r"checkpoints/1\.json"):
        storage.create("checkpoints/1.json", b"second")
    assert storage.read("checkpoints/1.json") == b"first"
    assert storage.list() == ["checkpoints/1.json"]


def test_create_refuses_a_name_that_put_took_and_takes_one_that_delete_freed(storage: Storage) -> None:
    storage.put("a", b"1")
    with pytest.raises(AlreadyExists):
        storage.create("a", b"2")
    storage.delete("a")
    storage.create("a", b"3")
    assert storage.read("a") == b"3"


@pytest.mark.parametrize("size", [0, 12_000_000])
def test_create_takes_any_size(storage: Storage, size: int) -> None:
    data = bytes(range(256)) * (size // 256)
    storage.create("a", data)
    assert storage.read("a") == data
    with pytest.raises(AlreadyExists):
        storage.create("a", data)


def test_absent_files(storage: Storage) -> None:
    storage.put("a/b", b"")
    for path in ["x", "a", "a/x", "x/y", "a/b/c"]:
        assert not storage.exists(path)
        with pytest.raises(NotFound, match=path):
            storage.read(path)
        with pytest.raises(NotFound, match=path):
            storage.size(path)


def test_list_is_sorted_recursive_and_takes_whole_directories(storage: Storage) -> None:
    paths = ["a/2", "a/10", "a/b/c/d", "ab/1", "b", "a-b/1"]
    for path in paths:
        storage.put(path, b"")
    assert storage.list() == sorted(paths)
    assert storage.list("a") == ["a/10", "a/2", "a/b/c/d"]
    assert storage.list("a/b") == ["a/b/c/d"]
    assert storage.list("b") == []  # a file
    assert storage.list("x/y") == []


def test_list_continues_after_a_path(storage: Storage) -> None:
    paths = ["a-b/1", "a/1/x", "a/10/x", "a/2/b/c", "a/2/z", "a/x", "a/x.y", "b"]
    for path in paths:
        storage.put(path, b"")
    for after in ["", "a", "a/1", "a/1/", "a/10/x", "a/2", "a/2/b", "a/2/zz", "a/3", "b", "zzz"]:
        left = sorted(path for path in paths if path > after)
        assert storage.list(after=after) == left, after
        assert storage.list("a", after) == [path for path in left if path.startswith("a/")], after


def test_list_is_whole_while_other_directories_come_and_go(storage: Storage) -> None:
    kept = [f"d/{n}/kept" for n in (1, 3, 5)]
    for path in kept:
        storage.put(path, b"")
    over = Event()

    def change() -> None:
        while not over.is_set():
            for n in (0, 2, 4, 6):
                storage.put(f"d/{n}/x/file", b"")
            for n in (0, 2, 4, 6):
                storage.delete(f"d/{n}/x/file")

    changing = Thread(target=change)
    changing.start()
    try:
        for _ in range(50):
            assert [path for path in storage.list("d") if path.endswith("kept")] == kept
    finally:
        over.set()
        changing.join()


def test_tells_when_a_file_was_written(storage: Storage) -> None:
    storage.put("a/1", b"x")
    assert abs(storage.modified_ms("a/1") / 1000 - time.time()) < 60
    with pytest.raises(NotFound):
        storage.modified_ms("a")


def test_delete(storage: Storage) -> None:
    storage.put("a/1", b"")
    storage.put("a/2", b"")
    storage.delete("a/1")
    storage.delete("a/1")
    storage.delete("a")  # a directory is no file
    storage.delete("a/2/x")
    assert storage.list() == ["a/2"]


def test_many_files_are_deleted_at_once(storage: Storage) -> None:
    names = [f"a/{n:04}" for n in range(1100)] if storage.url.startswith("memory") else ["a/1", "a/2", "b/1"]
    for name in [*names, "kept"]:
        storage.put(name, b"x")
    storage.delete_all([*names, "a/absent"])
    storage.delete_all(names)
    storage.delete_all([])
    assert storage.list() == ["kept"]


def test_delete_prefix(storage: Storage) -> None:
    for path in ["a/1", "a/b/2", "ab/3", "c"]:
        storage.put(path, b"")
    storage.delete_prefix("a")
    storage.delete_prefix("a")
    storage.delete_prefix("c")  # a file is no directory
    assert storage.list() == ["ab/3", "c"]


def test_refuses_paths_that_are_not_plainly_below_the_root(storage: Storage) -> None:
    calls = [storage.read, storage.delete, storage.delete_prefix, storage.exists, storage.size]
    writes = [partial(write, data=b"") for write in (storage.put, storage.create)]
    for path in BAD_PATHS:
        for call in [*calls, *writes, *([storage.list] if path else [])]:
            with pytest.raises(StorageError, match="storage path"):
                call(path)
    assert storage.list() == []


def test_the_url_opens_the_same_files(storage: Storage, request: pytest.FixtureRequest) -> None:
    storage.put("a", b"1")
    config = request.getfixturevalue("s3_config") if storage.url.startswith("s3:") else None
    assert open_storage(storage.url, config).read("a") == b"1"


def test_travels_in_a_pickle(storage: Storage) -> None:
    storage.put("a", b"1")
    assert pickle.loads(pickle.dumps(storage)).read("a") == b"1"


def test_threads_that_race_to_create_have_one_winner(storage: Storage) -> None:
    if storage.url.startswith("s3:"):
        pytest.skip("moto checks and then writes, without a lock between; real stores do both in one step")
    barrier, names = Barrier(4), 5 if isinstance(storage, HdfsStorage) else 25

    def race(data: bytes) -> list[int]:
        won = []
        for name in range(names):
            barrier.wait()
            try:
                storage.create(f"d/{name}", data)
            except AlreadyExists:
                continue
            won.append(name)
        return won

    with ThreadPoolExecutor(4) as pool:
        contents = [b"%d" % number * 1000 for number in range(4)]
        wins = dict(zip(contents, pool.map(race, contents), strict=True))
    assert sorted(name for won in wins.values() for name in won) == list(range(names))
    assert all(storage.read(f"d/{name}") == data for data, won in wins.items() for name in won)


def _processes() -> Any:
    """Of processes that are forked from one that has loaded what they need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _race(storage: Storage, data: bytes, names: int, barrier: object, results: object) -> None:
    won = []
    for name in range(names):
        barrier.wait()  # type: ignore[attr-defined]
        try:
            storage.create(f"d/{name}", data)
        except AlreadyExists:
            continue
        won.append(name)
    results.put((data, won))  # type: ignore[attr-defined]


def test_two_processes_that_race_to_create_have_one_winner(storage: Storage) -> None:
    if not isinstance(storage, LocalStorage | HdfsStorage):
        pytest.skip("memory belongs to one process; moto checks and then writes, without a lock between")
    context = _processes()
    barrier, results = context.Barrier(2), context.Queue()
    names = 10 if isinstance(storage, HdfsStorage) else 100  # its name node is a busy JVM
    racers = [
        context.Process(target=_race, args=(storage, b"%d" % number * 1000, names, barrier, results)) for number in range(2)
    ]
    for racer in racers:
        racer.start()
    wins = [results.get() for _ in racers]
    for racer in racers:
        racer.join()
    assert sorted(name for _, won in wins for name in won) == list(range(names))
    assert all(storage.read(f"d/{name}") == data for data, won in wins for name in won)
    assert all(won for _, won in wins)  # or it was no race


def test_s3_lets_one_of_two_processes_create(s3_config: dict[str, str]) -> None:
    """Taking turns, as the test server's conditional write is not atomic."""
    url = "s3://state/turns"
    open_storage(url, s3_config).create("a", b"mine")
    context = _processes()
    barrier, results = context.Barrier(1), context.Queue()
    other = context.Process(target=_race, args=(ObjectStorage(f"{url}/d-of", s3_config), b"x", 1, barrier, results))
    other.start()
    assert results.get() == (b"x", [0])
    other.join()
    with pytest.raises(AlreadyExists):
        open_storage(url, s3_config).create("d-of/d/0", b"mine")
    assert open_storage(url, s3_config).read("d-of/d/0") == b"x"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "empty"),
        ("s3a://bucket/x", "unknown scheme 's3a'.*s3://"),
        ("hdfs://name", "not a directory of HDFS"),
        ("hdfs://name/x?y", "not a directory of HDFS"),
        ("file://host/x", "not a local file URL"),
        ("file:x", "not a local file URL"),
        ("s3:///x", "names no bucket"),
    ],
)
def test_open_storage_refuses(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_storage(url)


def test_open_storage_reports_unusable_settings() -> None:
    storage = open_storage("s3://bucket/x", {"no_such_setting": "1"})
    with pytest.raises(ConfigError, match="no_such_setting"):
        storage.exists("a")


def test_settings_of_the_http_client_are_taken_too(s3_config: dict[str, str]) -> None:
    storage = open_storage("s3://state/client", {**s3_config, "allow_http": "true", "timeout": "20s"})
    storage.create("a", b"1")
    assert storage.read("a") == b"1"
    with pytest.raises(StorageError):
        open_storage("s3://state/client", {**s3_config, "allow_http": "false"}).read("a")


def test_a_missing_bucket_is_not_a_missing_file(s3_config: dict[str, str]) -> None:
    storage = open_storage("s3://no-such-bucket/x", s3_config)
    with pytest.raises(StorageError, match=r"s3://no-such-bucket/x.*Check the bucket") as caught:
        storage.create("a", b"")
    assert not isinstance(caught.value, NotFound)


def test_settings_may_be_secret(s3_config: dict[str, str]) -> None:
    assert repr(open_storage("s3://b/x", {**s3_config, "secret_access_key": "hush"})) == "ObjectStorage('s3://b/x')"


def test_hdfs_without_a_name_node_is_an_error_with_a_remedy() -> None:
    with pytest.raises(StorageError, match=r"cannot list hdfs://localhost:1/state from .*Check the name node") as caught:
        open_storage("hdfs://localhost:1/state", {"dfs.client.failover.max.attempts": "1"}).list()
    assert "\n" not in str(caught.value)


def test_files_on_hdfs_are_private_to_their_user(hadoop: MiniHadoop, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{hadoop.hdfs}/private"
    open_storage(url).put("a", b"1")
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    other = open_storage(url)
    with pytest.raises(AccessDenied, match=r"Permission denied: user=stranger.*Give this user access"):
        other.read("a")
    with pytest.raises(AccessDenied, match="Permission denied: user=stranger"):
        other.create("b", b"2")


def test_hdfs_finds_the_default_file_system(hadoop: MiniHadoop, monkeypatch: pytest.MonkeyPatch) -> None:
    open_storage(f"{hadoop.hdfs}/default").put("a", b"1")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hadoop.configuration))
    assert open_storage("hdfs:///default").read("a") == b"1"


def test_a_writer_on_hdfs_that_died_leaves_nothing_that_is_listed(hadoop: MiniHadoop) -> None:
    storage = open_storage(f"{hadoop.hdfs}/died")
    assert isinstance(storage, HdfsStorage)
    with pytest.raises(KeyboardInterrupt), storage._written("/died/a/b", b"1"):
        raise KeyboardInterrupt
    assert storage.list() == []
    storage._client.create("/died/a/.fp-tmp-1").write(b"half")  # never closed
    storage.create("a/b", b"2")
    assert storage.list() == ["a/b"]
    storage.delete_prefix("a")
    assert storage.list() == []


def test_a_file_system_that_has_become_read_only_is_an_outage(tmp_path, monkeypatch):
    """A running job waits until it is writable again, as it does for space."""
    storage = LocalStorage(str(tmp_path))

    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageUnavailable, match=r"Read-only file system. Remount the file system of .* writable"):
        storage.create("a", b"")
