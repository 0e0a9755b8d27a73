"""Finding savepoints, and disposing of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from forkpoint.checkpoint.manifest import Manifest, Parent, Run
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.checkpoint.states import StateInfo, state_id
from forkpoint.errors import ConfigError, SavepointCorrupt, SavepointNotFound, StorageError
from forkpoint.savepoint.catalog.dispose import dependents, dispose_savepoint
from forkpoint.savepoint.catalog.listing import find_savepoint, free_label, jobs_with_savepoints, list_savepoints
from forkpoint.savepoint.export.exporter import export_savepoint
from forkpoint.savepoint.format.tasks import run_here
from forkpoint.storage.base import LocalStorage, open_storage
from forkpoint.types import Types

PATHS = JobPaths("my job")


def export(storage: LocalStorage, name: str, created_ms: int, label: str | None = None) -> Savepoint:
    long = Types.LONG().describe()
    manifest = Manifest(
        job="my job",
        run="r",
        generation=1,
        epoch=1,
        kind="start",
        created_ms=0,
        processing_time_ms=0,
        parallelism=1,
        max_parallelism=4,
        states=[StateInfo(sid=state_id("u", "n"), uid="u", name="n", kind="value", key_type=long, value_type=long)],
    )
    target = open_storage(f"{storage.root}/{PATHS.savepoint(name)}")
    return export_savepoint(
        storage=storage,
        manifest=manifest,
        target=target,
        savepoint_id=name,
        run_tasks=run_here,
        label=label,
        created_ms=created_ms,
    )


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(str(tmp_path))
    export(storage, "b", 100, "early")
    export(storage, "a", 200, "good")
    export(storage, "c", 150)
    return storage


def test_savepoints_are_listed_by_age(storage: LocalStorage) -> None:
    damaged = f"{PATHS.savepoint('damaged')}/savepoint.json"
    storage.put(damaged, b"{")
    storage.put(f"{PATHS.savepoint('cut')}/operators/u/n/part-0.parquet", b"...")
    listed = list_savepoints(storage, "my job")
    assert [each.savepoint.id for each in listed if each.savepoint] == ["b", "c", "a"]
    problems = {each.directory.rsplit("/", 1)[1]: each for each in listed if each.savepoint is None}
    assert problems["cut"].unfinished
    assert not problems["damaged"].unfinished
    assert "damaged/savepoint.json" in (problems["damaged"].problem or "")
    assert list_savepoints(storage, "nobody") == []
    assert jobs_with_savepoints(storage) == ["my job"]


def test_finding_by_id_label_and_age(storage: LocalStorage) -> None:
    assert find_savepoint(storage, "my job").savepoint.id == "a"
    assert find_savepoint(storage, "my job", "c").savepoint.id == "c"
    assert find_savepoint(storage, "my job", "good").savepoint.id == "a"
    with pytest.raises(SavepointNotFound, match=r"'nope'.*there are: b, c, a"):
        find_savepoint(storage, "my job", "nope")
    with pytest.raises(SavepointNotFound, match="there are: none"):
        find_savepoint(storage, "nobody")


def test_the_latest_is_checked_when_opened(storage: LocalStorage) -> None:
    storage.delete(f"{PATHS.savepoint('a')}/operators/u/n/part-0.parquet")
    with pytest.raises(SavepointCorrupt, match=r"part-0.parquet .*is missing"):
        find_savepoint(storage, "my job")


def run(parent: str | None, ended_ms: int | None) -> Run:
    origin = Parent() if parent is None else Parent(kind="savepoint", savepoint_id=parent)
    return Run(job="other", run="r9", generation=1, parent=origin, started_ms=1, ended_ms=ended_ms)


def test_who_depends(storage: LocalStorage) -> None:
    stranger = find_savepoint(storage, "my job", "a").savepoint.replace(id="stranger", parent=Parent())
    child = stranger.replace(id="child", parent=Parent(kind="savepoint", savepoint_id="a"))
    assert dependents("a", [run("b", None), run("a", 5), run(None, None)], [stranger]) == []
    assert dependents("a", [run("a", None)], [child, stranger]) == [
        "run 'r9' of job 'other', which has not ended",
        "savepoint 'child', whose run started from it",
    ]
    assert not dependents("b", [run("a", None)], [child])


def test_disposing_is_refused_while_someone_depends(storage: LocalStorage) -> None:
    opened = find_savepoint(storage, "my job", "a")
    before = storage.list()
    with pytest.raises(StorageError, match="run 'r9' of job 'other', which has not ended; use --force"):
        dispose_savepoint(opened, runs=[run("a", None)], savepoints=[])
    assert storage.list() == before
    dispose_savepoint(opened, runs=[run("a", None)], savepoints=[], force=True)
    assert [path for path in before if not path.startswith(PATHS.savepoint("a"))] == storage.list()


def test_disposing_leaves_other_files_alone(storage: LocalStorage) -> None:
    storage.put(f"{PATHS.savepoint('a')}/README", b"mine")
    opened = find_savepoint(storage, "my job", "a")
    gone = dispose_savepoint(opened, runs=[], savepoints=[])
    assert gone == ["savepoint.json", "operators/u/n/part-0.parquet", "savepoint.json.sha256"]
    assert storage.list(PATHS.savepoint("a")) == [f"{PATHS.savepoint('a')}/README"]


def test_a_label_of_several_names_none_of_them(storage: LocalStorage) -> None:
    export(storage, "d", 300, "good")
    with pytest.raises(ConfigError, match=r"2 savepoints have the label 'good': a, d"):
        find_savepoint(storage, "my job", "good")
    assert find_savepoint(storage, "my job", "d").savepoint.id == "d"


@pytest.mark.parametrize("label", ["latest", "none", "", "a/b", "a\\b", "a\n"])
def test_what_cannot_be_a_label(storage: LocalStorage, label: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a label"):
        free_label(storage, "my job", label)


def test_a_label_is_one_savepoints(storage: LocalStorage) -> None:
    assert free_label(storage, "my job", "new") == "new"
    assert free_label(storage, "another job", "good") == "good"
    with pytest.raises(ConfigError, match=r"savepoint 'a' of job 'my job' already has the label 'good'"):
        free_label(storage, "my job", "good")
