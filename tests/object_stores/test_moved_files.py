"""Files that are staged and then moved: on a real HDFS; and in memory, with the copies of Google Cloud Storage and Azure."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import pytest

from connectors.connector_reading import Elements, json_round_trip, read_all
from forkpoint.connectors.files import remote
from forkpoint.connectors.files.sink import FileSink
from forkpoint.connectors.files.source import FileSource
from forkpoint.contract.sink import Sink, SinkContext, SinkWriter
from forkpoint.errors import ConfigError, NotFound, OutputLost, StorageError
from forkpoint.storage.files import FileStorage, open_files, split_url
from forkpoint.types import type_of
from object_stores.s3_job import KEYS
from programs import environment, run_python

PROGRAM = Path(__file__).with_name("s3_job.py")
FORMATS = ["parquet", "json", "csv", "text"]
LIKE_OTHERS = {("hdfs", "csv"), ("hdfs", "text")}  # as JSON: the store does not know what is in a file


class Reading(NamedTuple):
    room: int
    level: float


VALUES = [Reading(i, i / 2) for i in range(5)]


class Directory:
    def __init__(self, root: str) -> None:
        self.root, self.prefix = root.rstrip("/"), uuid.uuid4().hex
        self.storage: FileStorage = open_files(root)

    def url(self, path: str) -> str:
        return f"{self.root}/{self.prefix}/{path}"

    def put(self, path: str, data: bytes) -> None:
        writer = self.storage.writer(f"{self.prefix}/{path}")
        writer.write(data)
        writer.close()

    def read(self, path: str) -> bytes:
        found = self.storage.stat(f"{self.prefix}/{path}")
        return self.storage.read_range(found, 0, found.size)

    def delete(self, path: str) -> None:
        self.storage.remove(f"{self.prefix}/{path}")

    def paths(self, directory: str, *, hidden: bool = False) -> list[str]:
        found = [each.path.removeprefix(f"{self.prefix}/") for each in self.storage.files(f"{self.prefix}/{directory}")]
        return sorted(path for path in found if ("/." in path) == hidden)


@pytest.fixture(params=["memory", "hdfs"])
def directory(request: pytest.FixtureRequest) -> Directory:
    if request.param == "memory":
        return Directory(f"memory://{uuid.uuid4().hex}")
    return Directory(split_url(request.getfixturevalue("hadoop").hdfs)[0])


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
    source: Any = getattr(FileSource, kind)(url, *([] if kind == "text" else [Reading]), bounded=True)
    position, out = None, []
    while planned := (enumerator := source.create_enumerator(position)).plan(2):
        out += read_all(source, planned)["files"]
        position = json_round_trip(enumerator.position)
    return sorted(out)


@pytest.mark.parametrize(
    ("directory", "kind", "small_below"),
    [
        pytest.param(where, kind, small_below, marks=pytest.mark.slow if (where, kind) in LIKE_OTHERS else [])
        for where in ("memory", "hdfs")
        for kind in FORMATS
        for small_below in (0, 4 << 20)
    ],
    indirect=["directory"],
)
def test_nothing_is_visible_before_the_commit_and_all_of_it_after(
    directory: Directory, kind: str, small_below: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote.RemoteFile, "small_below", small_below)
    sink = getattr(FileSink, kind)(directory.url("out"), bucket=None if kind == "text" else "room")
    committables = prepared(sink, VALUES)
    assert directory.paths("out") == []
    assert len(directory.paths("out", hidden=True)) == len(committables)
    sink.check(committables)
    sink.commit(committables, 1)
    assert directory.paths("out", hidden=True) == []
    assert directory.paths("out")[0].startswith("out/part-0" if kind == "text" else "out/room=0/part-0")
    assert rows(kind, directory.url("out")) == (sorted(map(str, VALUES)) if kind == "text" else VALUES)


def test_commits_that_are_repeated_cut_short_and_too_late(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = FileSink.json(directory.url("out"))
    committables = [c for n in range(3) for c in prepared(sink, VALUES[n : n + 1], subtask=n)]
    with monkeypatch.context() as patched:  # it dies between copying and deleting
        patched.setattr(type(directory.storage), "remove", lambda *_: None)
        sink.commit(committables[:1], 1)
    for _ in range(3):
        sink.commit(committables, 1)
    assert rows("json", directory.url("out")) == VALUES[:3]
    assert directory.paths("out", hidden=True) == []
    directory.delete(directory.paths("out")[0])
    with pytest.raises(NotFound, match="1 of the 3 files of epoch 1 are neither staged nor published"):
        sink.commit(committables, 1)


def test_what_is_lost_and_what_is_in_the_way(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forkpoint.connectors.files.staged.MovedFiles.at_once", 1)
    sink = FileSink.json(directory.url("out"))
    committables = [c for n in range(2) for c in prepared(sink, VALUES[n : n + 1], subtask=n)]
    directory.storage.remove(committables[1]["staged"])
    with pytest.raises(ConfigError, match="does not see it"):
        sink.check(committables)
    with pytest.raises(OutputLost, match="1 of its 2 files"):
        sink.commit(committables, 1)
    directory.put(committables[0]["final"].removeprefix(f"{directory.prefix}/"), b"foreign")
    with pytest.raises(StorageError, match="already exists, so a file of epoch 1 cannot get this name"):
        sink.commit(committables[:1], 1)
    with pytest.raises(ConfigError, match="already exists, though its epoch has not been committed"):
        prepared(sink, VALUES)


def test_cleanup_leaves_other_jobs_and_newer_runs_alone(directory: Directory) -> None:
    sink = FileSink.json(directory.url("out"), bucket=lambda e: f"room-{e.room}")
    for epoch, job, generation in ((1, "job", 1), (2, "job", 2), (9, "job", 10), (3, "job", 3), (1, "other", 1)):
        prepared(sink, VALUES[:1], epoch=epoch, job=job, generation=generation)
    sink.cleanup("out", "job", 2)
    names = [path.rpartition("/")[2][16:34] for path in directory.paths("out", hidden=True)]
    assert sorted(names) == [".part-000000000001", ".part-000000000003", ".part-000000000009"]
    sink.cleanup("out", "job", 10)
    assert len(directory.paths("out", hidden=True)) == 1
    for kind in FORMATS:
        writer = writer_of(getattr(FileSink, kind)(directory.url("aborted")))
        writer.write(Elements(VALUES, type=type_of(Reading)))
        writer.abort()
    assert directory.paths("aborted", hidden=True) == directory.paths("aborted") == []


def test_a_source_of_hdfs_sees_changes(directory: Directory) -> None:
    if directory.root.startswith("memory"):
        with pytest.raises(StorageError, match="has changed"):
            changed(directory)
        return
    with pytest.raises(ConfigError, match="does not exist; create the directory, or correct the path"):
        FileSource.text(directory.url("in")).create_enumerator(None)
    with pytest.raises(StorageError, match="has changed since it was found"):
        changed(directory)
    directory.delete("in/a")
    source = FileSource.text(directory.url("in"))
    enumerator = source.create_enumerator(None)
    for name in ("x/y/b", ".hidden/c", "d"):
        directory.put(f"in/{name}", name.encode())
    assert sorted(read_all(source, enumerator.plan(10))["files"]) == ["d", "x/y/b"]
    directory.put("in/e", b"e")
    assert read_all(source, enumerator.plan(10))["files"] == ["e"]
    file = FileSource.text(directory.url("in/e"), bounded=True)
    assert read_all(file, file.create_enumerator(None).plan(10))["files"] == ["e"]


def changed(directory: Directory) -> None:
    directory.put("in/a", b"1\n")
    source = FileSource.text(directory.url("in"))
    planned = source.create_enumerator(None).plan(10)
    directory.put("in/a", b"22\n")
    read_all(source, planned)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["moved", "moved+", "manifest+", "move", "move+"])
def test_a_job_on_hdfs_that_is_killed_at_a_step(hadoop: Any, tmp_path: Path, step: str) -> None:
    directory = Directory(split_url(hadoop.hdfs)[0])
    for number in range(6):
        numbers = range(number * 40, (number + 1) * 40)
        directory.put(f"in/{number}.json", "".join(json.dumps({"number": n}) + "\n" for n in numbers).encode())

    def run(*death: str) -> subprocess.CompletedProcess[str]:
        command = [PROGRAM, directory.url("in"), directory.url("out"), tmp_path, *death]
        return run_python(command, env=environment(), capture_output=True, text=True)

    died = run(step, "3")
    assert died.returncode == -9, died.stderr
    done = run()
    assert done.returncode == 0, done.stderr
    values = [json.loads(line) for path in directory.paths("out") for line in directory.read(path).splitlines()]
    assert sorted((v["key"], v["seen"]) for v in values) == [(k, n) for k in range(KEYS) for n in range(1, 25)]
    assert directory.paths("out", hidden=True) == []
