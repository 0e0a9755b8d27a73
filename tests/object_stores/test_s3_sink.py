"""The file sink on S3: uploads that are completed once, and aborted only by their own job."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import pytest

from connectors.connector_reading import Elements, json_round_trip
from forkpoint.connectors.files import s3
from forkpoint.connectors.files.sink import FileSink
from forkpoint.connectors.files.source import FileSource
from forkpoint.contract.sink import Sink, SinkContext, SinkWriter
from forkpoint.errors import AccessDenied, ConfigError, NotFound, OutputLost, StorageError
from forkpoint.types import type_of
from object_stores.buckets import Bucket
from unreliable import BUCKET, Fault, UnreliableProxy, s3_environment

FORMATS = ["parquet", "json", "csv", "text"]


class Reading(NamedTuple):
    room: int
    level: float


def writer_of(
    sink: Sink, epoch: int = 1, subtask: int = 0, attempt: str = "0", job: str = "job", generation: int = 1
) -> SinkWriter:
    shipped: Sink = cloudpickle.loads(cloudpickle.dumps(sink))
    return shipped.create_writer(SinkContext("out", job, epoch, subtask, attempt, generation))


def prepared(sink: Sink, values: list[Any], type: Any = Reading, **context: Any) -> list[Any]:
    writer = writer_of(sink, **context)
    for value in values:
        writer.write(Elements([value], type=type_of(type)))
    return json_round_trip(writer.prepare_commit())  # type: ignore[no-any-return]


def rows(kind: str, url: str) -> list[Any]:
    source: Any = FileSource.text(url, bounded=True) if kind == "text" else getattr(FileSource, kind)(url, Reading, bounded=True)
    reader, enumerator, out = source.create_reader(), source.create_enumerator(None), []
    while planned := enumerator.plan(1000):
        for part in planned:
            for run in reader.read(part):
                out += source.output_type().from_columns(run.columns)
    return sorted(out)


VALUES = [Reading(i, i / 2) for i in range(5)]


@pytest.mark.parametrize("kind", FORMATS)
def test_nothing_is_visible_before_the_commit_and_all_of_it_after(bucket: Bucket, kind: str) -> None:
    sink = getattr(FileSink, kind)(bucket.url("out"))
    committables = prepared(sink, VALUES, epoch=42, subtask=3, attempt="17")
    assert bucket.visible("out") == []
    assert len(bucket.uploads("out")) == 1
    sink.check(committables)
    sink.commit(committables, 42)
    extension = {"json": "jsonl", "text": "txt"}.get(kind, kind)
    (name,) = bucket.visible("out")
    assert name.startswith("out/part-000000000042-3-17.g1.")
    assert name.endswith(f".{extension}")
    assert bucket.uploads("out") == []
    assert rows(kind, bucket.url("out")) == (sorted(map(str, VALUES)) if kind == "text" else VALUES)


def test_no_elements_no_upload(bucket: Bucket) -> None:
    writer = writer_of(FileSink.json(bucket.url("out")))
    writer.write(Elements([], type=type_of(Reading)))
    assert writer.prepare_commit() == []
    assert bucket.uploads("out") == []


def test_buckets_and_the_name_of_the_job(bucket: Bucket) -> None:
    sink = FileSink.json(bucket.url("out/{job}"), bucket="room").for_job("a job")
    assert sink.shared_directory is None
    assert sink.place == bucket.url("out/a!20job/part-*")
    sink.commit(prepared(sink, VALUES), 1)
    assert [name.rpartition("/")[0] for name in bucket.visible("out")] == [f"out/a!20job/room={i}" for i in range(5)]
    assert rows("json", bucket.url("out")) == VALUES


def test_large_files_have_many_parts(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "PART_BYTES", 5 << 20)
    lines = [str(n) * 500_000 for n in range(1, 10)] * 4
    sink = FileSink.text(bucket.url("out"))
    (committable,) = prepared(sink, lines, str)
    assert len(committable["parts"]) == 4
    assert committable["size"] == sum(map(len, lines)) + len(lines)
    sink.commit([committable], 1)
    (name,) = bucket.visible("out")
    assert bucket.get(name).decode().splitlines() == lines


def test_a_commit_may_be_repeated_and_completed(bucket: Bucket) -> None:
    sink = FileSink.json(bucket.url("out"))
    committables = [c for n in range(3) for c in prepared(sink, [VALUES[n]], subtask=n)]
    sink.commit(committables[:1], 1)  # killed in the middle
    for _ in range(3):
        sink.commit(committables, 1)
    sink.cleanup("out", "job", 1)
    assert rows("json", bucket.url("out")) == VALUES[:3]


def test_two_drivers_at_the_same_commit(bucket: Bucket) -> None:
    sink = FileSink.json(bucket.url("out"))
    committables = [c for n in range(20) for c in prepared(sink, [Reading(n, 0.0)], subtask=n)]
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(sink.commit, committables, 1) for _ in range(2)]:
            done.result()
    assert rows("json", bucket.url("out")) == [Reading(n, 0.0) for n in range(20)]


def test_of_two_attempts_one_is_visible(bucket: Bucket) -> None:
    sink = FileSink.json(bucket.url("out"))
    zombie = writer_of(sink)
    zombie.write(Elements([VALUES[0]], type=type_of(Reading)))
    committables = prepared(sink, VALUES[:2])
    zombie.prepare_commit()  # it comes to its end, but no manifest names it
    sink.commit(committables, 1)
    assert rows("json", bucket.url("out")) == VALUES[:2]
    sink.cleanup("out", "job", 1)
    assert bucket.uploads("out") == []
    assert rows("json", bucket.url("out")) == VALUES[:2]


def test_abort_ends_the_upload(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "PART_BYTES", 1)
    for kind in FORMATS:
        writer = writer_of(getattr(FileSink, kind)(bucket.url("out")))
        writer.write(Elements(VALUES, type=type_of(Reading)))
        assert len(bucket.uploads("out")) == 1
        writer.abort()
        assert bucket.uploads("out") == []


def test_cleanup_leaves_other_jobs_and_newer_runs_alone(bucket: Bucket) -> None:
    sink = FileSink.json(bucket.url("out"), bucket=lambda e: f"room-{e.room}")
    for epoch, job, generation in ((1, "job", 1), (2, "job", 2), (9, "job", 10), (3, "job", 3), (1, "other", 1)):
        prepared(sink, VALUES[:1], epoch=epoch, job=job, generation=generation)
    foreign = bucket.client.create_multipart_upload(Bucket=BUCKET, Key=f"{bucket.prefix}/out/part-of-another-program")
    assert foreign
    prepared(FileSink.json(bucket.url("outside")), VALUES[:1])

    def epochs() -> list[str]:
        return sorted(name.rpartition("/")[2][:17] for name, _ in bucket.uploads("out"))

    sink.cleanup("out", "job", 2)  # an older driver that wakes up
    assert epochs() == ["part-000000000001", "part-000000000003", "part-000000000009", "part-of-another-p"]
    sink.cleanup("other sink", "job", 99)
    assert len(epochs()) == 4
    sink.cleanup("out", "job", 10)
    assert epochs() == ["part-000000000001", "part-of-another-p"]
    assert len(bucket.uploads("outside")) == 1


# -- output that is gone


def abort_all(bucket: Bucket, choose: Callable[[int], bool] = lambda n: True) -> None:
    for number, (path, upload) in enumerate(sorted(bucket.uploads("out"))):
        if choose(number):
            bucket.abort(path, upload)


def test_an_upload_that_is_gone_before_the_manifest_is_refused(bucket: Bucket) -> None:
    sink = FileSink.json(bucket.url("out"))
    committables = prepared(sink, VALUES)
    abort_all(bucket)
    with pytest.raises(ConfigError, match=r"a task has written the upload s3://.*does not see it.*nothing is lost"):
        sink.check(committables)


def test_uploads_aborted_before_publishing_began_are_lost(bucket: Bucket) -> None:
    sink = FileSink.json(bucket.url("out"))
    sink.commit(prepared(sink, VALUES, epoch=1), 1)
    committables = [c for n in range(3) for c in prepared(sink, [VALUES[n]], subtask=n, epoch=2)]
    abort_all(bucket)
    for _ in range(2):
        with pytest.raises(OutputLost, match=r"epoch 2 is committed, but 3 of its 3 files were removed"):
            sink.commit(committables, 2)
    bucket.put(committables[0]["key"].removeprefix(f"{bucket.prefix}/"), "")  # as the message says
    with pytest.raises(OutputLost, match=r"2 of its 3 files"):
        sink.commit(committables, 2)


def test_an_upload_aborted_after_an_earlier_one_that_is_staged_is_lost(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3.S3Files, "at_once", 1)
    sink = FileSink.json(bucket.url("out"))
    committables = [c for n in range(3) for c in prepared(sink, [VALUES[n]], subtask=n)]
    s3.S3Files(bucket.url("out")).begin(committables, 1)  # and died
    abort_all(bucket, lambda n: n == 2)
    with pytest.raises(OutputLost, match=r"1 of its 3 files.*part-000000000001-2"):
        sink.commit(committables, 1)
    assert bucket.visible("out") == []


def test_what_a_reader_took_is_missing_and_the_rest_is_published(bucket: Bucket) -> None:
    sink = FileSink.json(bucket.url("out"))
    committables = [c for n in range(3) for c in prepared(sink, [VALUES[n]], subtask=n)]
    sink.commit(committables[:2], 1)  # killed in the middle
    bucket.delete(bucket.visible("out")[0])
    with pytest.raises(NotFound, match="1 of the 3 files of epoch 1 are neither staged nor published"):
        sink.commit(committables, 1)
    assert rows("json", bucket.url("out")) == VALUES[1:3]
    sink.commit(prepared(sink, VALUES[:1], epoch=5), 5)
    sink.cleanup("out", "job", 1)
    with pytest.raises(NotFound):  # an older driver, to which a newer one's marks tell that it is too late
        sink.commit(committables, 1)


def test_a_name_that_is_taken(bucket: Bucket) -> None:
    sink = FileSink.json(bucket.url("out"))
    committables = prepared(sink, VALUES)
    bucket.put(committables[0]["key"].removeprefix(f"{bucket.prefix}/"), "foreign")
    with pytest.raises(StorageError, match=r"already exists, so a file of epoch 1 cannot get this name"):
        sink.commit(committables, 1)
    with pytest.raises(ConfigError, match=r"already exists, though its epoch has not been committed"):
        prepared(sink, VALUES)


# -- a store that fails


@pytest.fixture
def proxy(bucket: Bucket, s3_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Any:
    proxy = UnreliableProxy(s3_address)
    for name, value in s3_environment(proxy.endpoint).items():
        monkeypatch.setenv(name, value)
    yield proxy
    proxy.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lost answer", "late error", "cut", "error"])
def test_answers_that_are_lost_on_the_way(bucket: Bucket, proxy: UnreliableProxy, kind: Any) -> None:
    sink = FileSink.json(bucket.url("out"))
    proxy.inject(Fault(kind, on="uploadId", times=2))
    committables = prepared(sink, VALUES)
    proxy.inject(Fault(kind, on="uploadId", times=2))
    sink.check(committables)
    proxy.inject(Fault(kind, on="^delete .*uploadId", times=1))
    sink.commit(committables, 1)
    proxy.heal()
    assert rows("json", bucket.url("out")) == VALUES


def test_a_store_without_conditional_completion(bucket: Bucket, proxy: UnreliableProxy) -> None:
    sink = FileSink.json(bucket.url("out"))
    committables = prepared(sink, VALUES)
    proxy.inject(Fault("error", on="^delete .*uploadId", times=1, status=501))
    sink.commit(committables, 1)
    assert proxy.met
    assert rows("json", bucket.url("out")) == VALUES


def test_few_marks_remain(bucket: Bucket) -> None:
    sink = FileSink.json(bucket.url("out"))
    for epoch in (1, 2, 5, 9):
        sink.commit(prepared(sink, VALUES[:1], epoch=epoch), epoch)
    files = s3.S3Files(bucket.url("out"))
    assert [mark[-2:] for mark in files._marks(committable_owner(sink))] == ["09"]
    s3._marked.clear()
    sink.commit(prepared(sink, VALUES[:1], epoch=10), 10)  # in another process
    assert [mark[-2:] for mark in files._marks(committable_owner(sink))] == ["09", "10"]
    sink.cleanup("out", "job", 1)
    assert [mark[-2:] for mark in files._marks(committable_owner(sink))] == ["10"]


def committable_owner(sink: FileSink) -> str:
    (committable,) = prepared(sink, VALUES[:1], epoch=99)
    return str(committable["owner"])


@pytest.mark.slow
def test_denied_access_is_an_error_with_a_remedy(bucket: Bucket, proxy: UnreliableProxy, tmp_path: Path) -> None:
    proxy.inject(Fault("error", on="uploads", status=403))
    with pytest.raises(AccessDenied, match=r"cannot begin an upload s3://state/.*Check credentials and permissions"):
        prepared(FileSink.json(bucket.url("out")), VALUES)


def test_a_bucket_that_does_not_exist(bucket: Bucket) -> None:
    with pytest.raises(StorageError, match=r"s3://nowhere/out/.*NoSuchBucket.*Check the bucket"):
        prepared(FileSink.json("s3://nowhere/out"), VALUES)
    with pytest.raises(StorageError, match=r"s3://nowhere.*Check the bucket"):
        FileSource.json("s3://nowhere/in").create_enumerator(None).plan(1)


def test_committables_are_small(bucket: Bucket) -> None:
    assert len(json.dumps(prepared(FileSink.json(bucket.url("out")), VALUES))) < 400
