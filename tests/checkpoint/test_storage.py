"""The storage contract, the same for every implementation."""

from __future__ import annotations

import multiprocessing
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from forkpoint.errors import AlreadyExists, ConfigError, NotFound, StorageError
from forkpoint.storage.base import LocalStorage, Storage, open_storage
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


@pytest.mark.parametrize("path", ["a b/ü%20#1+~!?&=:.json", "a!20b/x", "_x/.y"])
def test_keeps_names_as_they_are(storage: Storage, path: str) -> None:
    storage.create(path, b"1")
    assert storage.list() == [path]
    assert storage.read(path) == b"1"


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


@pytest.mark.parametrize("path", BAD_PATHS)
def test_refuses_paths_that_are_not_plainly_below_the_root(storage: Storage, path: str) -> None:
    calls = [storage.read, storage.delete, storage.delete_prefix, storage.exists, storage.size]
    for call in calls:
        with pytest.raises(StorageError, match="storage path"):
            call(path)
    for write in (storage.put, storage.create):
        with pytest.raises(StorageError, match="storage path"):
            write(path, b"")
    if path:
        with pytest.raises(StorageError, match="storage path"):
            storage.list(path)
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
    barrier = Barrier(4)

    def race(data: bytes) -> list[int]:
        won = []
        for name in range(25):
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
    assert sorted(name for won in wins.values() for name in won) == list(range(25))
    assert all(storage.read(f"d/{name}") == data for data, won in wins.items() for name in won)


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
    if not isinstance(storage, LocalStorage):
        pytest.skip("memory belongs to one process; moto checks and then writes, without a lock between")
    context = multiprocessing.get_context("spawn")
    barrier, results, names = context.Barrier(2), context.Queue(), 100
    racers = [
        context.Process(target=_race, args=(storage, b"%d" % number * 1000, names, barrier, results))
        for number in range(2)
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
    context = multiprocessing.get_context("spawn")
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
        ("hdfs://name/x", "unknown scheme 'hdfs'"),
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
