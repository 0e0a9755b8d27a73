"""The file source on S3: each record once and in order, in ranges where the format allows; what it says about changes."""

from __future__ import annotations

import gzip
import json
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.connector_reading import json_round_trip, read_all
from forkpoint.connectors.files import remote
from forkpoint.connectors.files.source import FileSource
from forkpoint.contract.source import Source, SplitEnumerator
from forkpoint.errors import ConfigError, RecordParseError, StorageError, SystemUnavailable
from forkpoint.storage import object_storage
from forkpoint.storage.object_storage import ObjectStorage
from object_stores.buckets import Bucket
from unreliable import BUCKET

FORMATS = ["json", "csv", "text", "parquet"]


class Event(NamedTuple):
    id: int
    room: str


def content(kind: str, ids: list[int]) -> bytes:
    match kind:
        case "json":
            return "".join(json.dumps({"id": i, "room": f"r{i}"}) + "\n" for i in ids).encode()
        case "csv":
            return ("room,id\n" + "".join(f"r{i},{i}\n" for i in ids)).encode()
        case "parquet":
            out = pa.BufferOutputStream()
            pq.write_table(pa.table({"id": ids, "room": [f"r{i}" for i in ids]}), out, row_group_size=50)
            return bytes(out.getvalue())
    return "".join(f"line {i}\n" for i in ids).encode()


def expected(kind: str, ids: list[int]) -> list[Any]:
    return [f"line {i}" for i in ids] if kind == "text" else [Event(i, f"r{i}") for i in ids]


def source_of(kind: str, url: str, **options: Any) -> Any:
    return FileSource.text(url, **options) if kind == "text" else getattr(FileSource, kind)(url, Event, **options)


def drain(source: Source, enumerator: SplitEnumerator, max_rows: int = 1000) -> list[Any]:
    out: list[Any] = []
    while planned := enumerator.plan(max_rows):
        out += read_all(source, planned)["files"]
    return out


@pytest.mark.parametrize(
    ("kind", "small_below"),
    [
        pytest.param(kind, small_below, marks=pytest.mark.slow if small_below == 0 and kind in ("csv", "text") else [])
        for kind in FORMATS  # in ranges, text and CSV are read by lines, as JSON is
        for small_below in (0, 4 << 20)
    ],
)
def test_each_record_once_from_any_position(bucket: Bucket, kind: str, small_below: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in ranges, or as a whole; restarted after each epoch, as if from its manifest."""
    monkeypatch.setattr(remote.RemoteFile, "small_below", small_below)
    for n, ids in enumerate([range(120), range(120, 130), range(130, 200)]):
        bucket.put(f"in/d{n}/part", content(kind, list(ids)))
    source, position, out = source_of(kind, bucket.url("in"), bounded=True), None, []
    while planned := (enumerator := source.create_enumerator(position)).plan(37):
        out += read_all(source, planned)["files"]
        position = json_round_trip(enumerator.position)
    assert sorted(out) == sorted(expected(kind, list(range(200))))
    assert enumerator.finished
    assert position["files"] == 3


def test_a_directory_a_file_a_glob_a_pattern(bucket: Bucket) -> None:
    for n, name in enumerate(["a-1.txt", "a-2.txt", "b.txt", "c.csv", "d/a-3.txt", "d/e/a-4.txt", ".h.txt", "_x/a-5.txt"]):
        bucket.put(f"in/{name}", content("text", [n]))
    bucket.put("in/f/", "")  # as consoles make directories
    bucket.put("in/empty.txt", "")
    bucket.put("in2/a-1.txt", content("text", [99]))

    def ids(path: str, **options: Any) -> list[int]:
        source = FileSource.text(bucket.url(path), bounded=True, **options)
        return sorted(int(line.split()[1]) for line in drain(source, source.create_enumerator(None)))

    assert ids("in") == ids("in/") == [0, 1, 2, 3, 4, 5]
    assert ids("in/b.txt") == [2]
    assert ids("in/a-*.txt") == [0, 1]
    assert ids("in/*/*.txt") == [4]
    assert ids("in/**/a-*") == [0, 1, 4, 5]
    assert ids("in/d/**/a*") == [4, 5]
    assert ids("in/[b-c].*") == [2, 3]
    assert ids("in", pattern="*.csv") == [3]
    assert ids("in", pattern="d/**") == [4, 5]
    assert ids("nothing") == []


def test_a_glob_asks_for_the_names_that_begin_as_it_does(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(30):
        bucket.put(f"in/{n:02}/x.txt", content("text", [n]))
    seen, asked = [], ObjectStorage.files

    def files(self: Any, *arguments: Any) -> Any:
        for each in asked(self, *arguments):
            seen.append(each.path)
            yield each

    monkeypatch.setattr(ObjectStorage, "files", files)
    source = FileSource.text(bucket.url("in/1*/x.txt"), bounded=True)
    assert len(drain(source, source.create_enumerator(None))) == 10
    assert [path.split("/")[-2] for path in seen] == [f"{n}" for n in range(10, 21)]


def test_new_files_are_found_and_old_names_too(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("in/m", content("text", [1]))
    source = FileSource.text(bucket.url("in"))
    enumerator: Any = source.create_enumerator(None)
    assert drain(source, enumerator) == ["line 1"]
    enumerator._listing._full_seconds = 1e9  # no full listing from now on
    bucket.put("in/n", content("text", [2]))
    bucket.put("in/b", content("text", [3]))
    assert drain(source, enumerator) == ["line 2"]
    enumerator._listing._full_seconds = 0
    assert drain(source, enumerator) == ["line 3"]
    bucket.put("in/n", content("text", [4]))  # known by its path, as locally
    assert drain(source, enumerator) == []
    resumed = source.create_enumerator(json_round_trip(enumerator.position))
    assert drain(source, resumed) == []


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("small_below", [0, 4 << 20])
def test_a_file_that_changes_or_vanishes_is_an_error(
    bucket: Bucket, kind: str, small_below: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote.RemoteFile, "small_below", small_below)
    bucket.put("in/a", content(kind, list(range(50))))
    source = source_of(kind, bucket.url("in"))
    planned = source.create_enumerator(None).plan(20)
    bucket.put("in/a", content(kind, list(range(50, 100))))  # as many bytes
    with pytest.raises(StorageError, match=r"/in/a: the file has changed since it was found.*must be complete"):
        read_all(source, planned)
    bucket.delete("in/a")
    with pytest.raises(StorageError, match=r"/in/a: the file has vanished since it was found"):
        read_all(source, planned)


def test_a_file_that_vanishes_before_it_is_begun_never_existed(bucket: Bucket) -> None:
    for name in ("a", "b"):
        bucket.put(f"in/{name}", content("text", [1]))
    source = FileSource.text(bucket.url("in"), bounded=True)
    enumerator = source.create_enumerator(None)
    bucket.delete("in/a")
    assert drain(source, enumerator) == ["line 1"]
    assert enumerator.position["files"] == 1


def test_large_files_are_read_in_ranges(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote.RemoteFile, "small_below", 1000)
    read, asked = [], ObjectStorage.read_range

    def read_range(self: Any, file: Any, start: int, end: int) -> bytes:
        read.append(end - start)
        return asked(self, file, start, end)

    monkeypatch.setattr(ObjectStorage, "read_range", read_range)
    wide = pa.table({"id": list(range(1000)), "room": ["r"] * 1000, "ballast": [b"%d" % n * 10_000 for n in range(1000)]})
    out = pa.BufferOutputStream()
    pq.write_table(wide, out, row_group_size=100, compression="none")
    bucket.put("in/wide.parquet", bytes(out.getvalue()))
    source = FileSource.parquet(bucket.url("in"), Event, bounded=True)
    assert [event.id for event in drain(source, source.create_enumerator(None), 150)] == list(range(1000))
    assert sum(read) < len(out.getvalue()) / 10


def test_compressed_files_and_bad_records(bucket: Bucket) -> None:
    bucket.put("in/a.json.gz", gzip.compress(content("json", [1, 2])))
    bucket.put("in/b.json", content("json", [3]) + b"{broken\n" + content("json", [4]))
    source = FileSource.json(bucket.url("in"), Event, bounded=True, on_parse_error="skip")
    assert sorted(drain(source, source.create_enumerator(None))) == expected("json", [1, 2, 3, 4])
    failing = FileSource.json(bucket.url("in"), Event, bounded=True)
    with pytest.raises(RecordParseError, match=r"s3://state/.*/in/b\.json, line 2: cannot read"):
        drain(failing, failing.create_enumerator(None))


@pytest.mark.parametrize("small_below", [0, 4 << 20])
def test_stops_at_a_position(bucket: Bucket, small_below: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote.RemoteFile, "small_below", small_below)
    for n in range(3):
        bucket.put(f"in/{n}", content("text", list(range(n * 100, n * 100 + 100))))
    source = FileSource.text(bucket.url("in"))
    first, rows = source.create_enumerator(None), 10 if small_below else 70  # an epoch is a file, or 70 lines
    read = [value for _ in range(2) for value in read_all(source, first.plan(rows))["files"]]
    again = source.create_enumerator(None)
    again.stop_at(json_round_trip(first.position))
    assert drain(source, again) == read
    assert again.at_stop
    assert again.position == first.position


def test_many_small_files(bucket: Bucket) -> None:
    for n in range(60):
        bucket.put(f"in/{n:03}", content("csv", [n]))
    source = source_of("csv", bucket.url("in"), bounded=True)
    assert drain(source, source.create_enumerator(None)) == expected("csv", list(range(60)))


def test_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, bucket: Bucket) -> None:
    monkeypatch.setattr(object_storage, "RETRY", {"max_retries": 1})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(SystemUnavailable, match=rf"s3://{BUCKET}/.*does not answer"):
        FileSource.json(bucket.url("in")).create_enumerator(None).plan(1)


def test_configuration_errors() -> None:
    with pytest.raises(ConfigError, match=r"s3:///x.* names no bucket"):
        FileSource.json("s3:///x").create_enumerator(None)
    with pytest.raises(ConfigError, match=r"s3a://b/x is a URL with an unknown scheme.*s3://"):
        FileSource.json("s3a://b/x")
