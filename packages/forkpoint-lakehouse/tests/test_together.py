"""Epochs that are committed together: fewer and larger files, fewer versions, and each row still once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

import forkpoint as fp
from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.contract.sink import SinkContext
from forkpoint.errors import ConfigError, SystemUnavailable
from forkpoint.types import type_of
from forkpoint_lakehouse.format import Conflict
from programs import ENVIRONMENT, run_python
from table_jobs import KEYS, catalog, expected, make_sink
from table_reading import files, iceberg, read, rows, run
from table_writing import Batch, Writing
from test_appends import ELEMENTS, LIBRARIES, PROGRAM, notes, with_duckdb

HOUR = timedelta(hours=1)


def epochs(kind: str, place: Path) -> list[int]:
    """The epochs that transactions of the table end with."""
    if kind == "delta":
        return sorted(int(e["forkpoint.epoch"]) for e in DeltaTable(place).history() if "forkpoint.epoch" in e)
    summaries = [snapshot.summary.additional_properties for snapshot in iceberg(place).snapshots()]
    return [int(summary["forkpoint.epoch"]) for summary in summaries]


def test_a_job_writes_one_file_in_one_transaction(kind: str, tmp_path: Path, place: Path) -> None:
    run(tmp_path / "root", make_sink(kind, str(place), commit_every=HOUR), ELEMENTS)
    assert rows(kind, place) == expected(ELEMENTS) == with_duckdb(files(kind, place))
    assert epochs(kind, place) == [1 + ELEMENTS // 50]
    assert len(files(kind, place)) == len(list(place.rglob("*.parquet"))) == 1
    assert not notes(tmp_path / "root")


def test_a_jobs_changes_are_merged_once(kind: str, tmp_path: Path, place: Path) -> None:
    sink = make_sink(kind, str(place), mode="upsert", key=("key",), commit_every=HOUR)
    run(tmp_path / "root", sink, ELEMENTS)
    assert rows(kind, place) == expected(ELEMENTS)[ELEMENTS // KEYS - 1 :: ELEMENTS // KEYS]
    assert epochs(kind, place) == [1 + ELEMENTS // 50]
    assert len(files(kind, place)) == len(list(place.rglob("*.parquet"))) == 1


def test_partitions_get_a_file_each(kind: str, tmp_path: Path, place: Path) -> None:
    sink = make_sink(kind, str(place), partition_by=("name",), commit_every=HOUR)
    run(tmp_path / "root", sink, ELEMENTS)
    assert sorted(tuple(row[n] for n in ("key", "seen", "name")) for row in read(kind, place)) == expected(ELEMENTS)
    assert len(files(kind, place)) == KEYS


def test_large_output_is_written_by_its_tasks_and_committed_together(
    kind: str, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forkpoint_lakehouse.writers.SMALL_BYTES", 0)
    run(tmp_path / "root", make_sink(kind, str(place), commit_every=HOUR), ELEMENTS)
    assert rows(kind, place) == expected(ELEMENTS) == with_duckdb(files(kind, place))
    assert len(files(kind, place)) > 1
    assert epochs(kind, place) == [1 + ELEMENTS // 50]
    assert not notes(tmp_path / "root")


def test_files_do_not_grow_beyond_what_is_held_in_memory(
    kind: str, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forkpoint_lakehouse.committer.FILE_BYTES", 2000)
    run(tmp_path / "root", make_sink(kind, str(place), commit_every=HOUR), ELEMENTS)
    assert rows(kind, place) == expected(ELEMENTS) == with_duckdb(files(kind, place))
    assert 1 < len(files(kind, place)) < ELEMENTS // 50
    assert epochs(kind, place) == [1 + ELEMENTS // 50]


STEPS = ["together", "together+", "commit", "commit+"]
CASES = [(f"{kind}-together", step) for kind in ("delta", "iceberg") for step in STEPS] + [
    ("iceberg-together", "catalog"),
    ("iceberg-together", "catalog+"),
    *((f"{kind}-upsert-together", step) for kind in ("delta", "iceberg") for step in ("commit", "commit+")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "step"), CASES)
def test_a_driver_that_is_killed_at_a_step(kind: str, tmp_path: Path, place: Path, step: str) -> None:
    """At one of the first transaction, and at one of the next run's."""
    root, elements = tmp_path / "root", 10 * ELEMENTS
    program = [PROGRAM, kind, place, root, elements]
    for number in ("3", "1") if step.startswith("catalog") else ("1", "1"):  # the first two make the table
        died = run_python([*program, step, number], env=ENVIRONMENT, loading=LIBRARIES, capture_output=True)
        assert died.returncode == -9, died.stderr.decode()
    run_python(program, env=ENVIRONMENT, loading=LIBRARIES, check=True)
    every = expected(elements)
    name = kind.partition("-")[0]
    wanted = every[elements // KEYS - 1 :: elements // KEYS] if "upsert" in kind else every
    assert rows(name, place) == wanted == with_duckdb(files(name, place))
    assert len(epochs(name, place)) < elements // 50
    assert not notes(root)


@pytest.fixture(params=["append", "upsert"])
def writing(request: pytest.FixtureRequest, kind: str, place: Path, tmp_path: Path) -> Writing:
    options: dict[str, Any] = {"mode": "upsert", "key": ("id",)} if request.param == "upsert" else {}
    return Writing(kind, place, tmp_path / "root", make_sink(kind, str(place), commit_every=HOUR, **options))


def is_upsert(output: EpochOutput) -> bool:
    return "changes" in output.committables[0]


def test_what_was_committed_with_others_is_not_committed_again(writing: Writing) -> None:
    outputs = [writing.write(epoch, 10 * epoch, 10 * epoch + 1) for epoch in range(1, 6)]
    for first, last in ((0, 2), (0, 2), (0, 1), (1, 4), (2, 3), (0, 5), (4, 5)):
        writing.committer().commit_together(outputs[first:last], 5)
    assert writing.rows() == [(10 * epoch + n, epoch) for epoch in range(1, 6) for n in (0, 1)]
    assert epochs(writing.kind, writing.place) == [2, 4, 5]


@pytest.mark.parametrize("theirs", [1, 2, 3])
@pytest.mark.parametrize("step", ["_committed", "_commit"])
def test_a_task_that_sleeps_while_others_commit_adds_only_what_is_missing(
    writing: Writing, monkeypatch: pytest.MonkeyPatch, step: str, theirs: int
) -> None:
    outputs = [writing.write(epoch, epoch) for epoch in range(1, 4)]
    kind = writing.committer_class
    usual = getattr(kind, step)
    others: list[Callable[[], None]] = [lambda: writing.committer().commit_together(outputs[:theirs], 3)]

    def sleeps(self: Any, *arguments: Any) -> Any:
        result = usual(self, *arguments) if step == "_committed" else None
        if others:
            others.pop()()
        return usual(self, *arguments) if step == "_commit" else result

    monkeypatch.setattr(kind, step, sleeps)
    writing.committer().commit_together(outputs, 3)
    assert not others
    assert writing.rows() == [(1, 1), (2, 2), (3, 3)]


THEIRS = pa.table({"id": [100], "epoch": [0]}, schema=pa.schema([("id", pa.int64()), ("epoch", pa.int64())]))


def test_what_is_put_together_is_written_once_if_other_writers_get_ahead(
    kind: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = Writing(kind, place, tmp_path / "root", make_sink(kind, str(place), commit_every=HOUR))
    outputs = [writing.write(epoch, epoch) for epoch in range(1, 4)]
    usual, left = writing.committer_class._commit, [1, 2, 3]

    def late(self: Any, *arguments: Any) -> None:
        if left:
            left.pop()
            if kind == "delta":
                write_deltalake(place, THEIRS, mode="append")
                raise Conflict("others")
            iceberg(place).append(THEIRS)
        usual(self, *arguments)

    monkeypatch.setattr(writing.committer_class, "_commit", late)
    writing.committer().commit_together(outputs, 3)
    assert not left
    assert writing.rows() == [(1, 1), (2, 2), (3, 3), *[(100, 0)] * 3]
    assert writing.files_there() == len(files(kind, place)) == 4


def test_what_the_table_refuses_in_the_end_leaves_nothing(
    kind: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forkpoint_lakehouse.committer._PAUSE_SECONDS", 0.0)
    writing = Writing(kind, place, tmp_path / "root", make_sink(kind, str(place), commit_every=HOUR))
    outputs = [writing.write(epoch, epoch) for epoch in range(1, 4)]

    def refused(*_: Any) -> None:
        assert writing.files_there() == 1
        raise Conflict("others")

    with monkeypatch.context() as patched:
        patched.setattr(writing.committer_class, "_commit", refused)
        with pytest.raises(SystemUnavailable, match="10 commits were refused"):
            writing.committer().commit_together(outputs, 3)
    assert writing.files_there() == 0
    writing.committer().commit_together(outputs, 3)
    assert writing.rows() == [(1, 1), (2, 2), (3, 3)]


def test_files_of_a_commit_that_was_executed_and_refused_stay(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a request whose answer was lost is sent again."""
    usual = writing.committer_class._commit

    def refused(self: Any, *arguments: Any) -> None:
        usual(self, *arguments)
        raise Conflict("it is there")

    monkeypatch.setattr(writing.committer_class, "_commit", refused)
    outputs = [writing.write(epoch, epoch) for epoch in range(1, 4)]
    writing.committer().commit_together(outputs, 3)
    assert writing.rows() == [(1, 1), (2, 2), (3, 3)]


def test_a_sink_without_the_option_commits_what_one_with_it_has_staged(kind: str, place: Path, tmp_path: Path) -> None:
    before = Writing(kind, place, tmp_path / "root", make_sink(kind, str(place), commit_every=HOUR))
    outputs = [before.write(epoch, epoch) for epoch in range(1, 4)]
    after = Writing(kind, place, tmp_path / "root", make_sink(kind, str(place)))
    for output in outputs:
        after.committer().commit(output, 3)
    assert after.rows() == [(1, 1), (2, 2), (3, 3)]


class Named(NamedTuple):
    """A row of a later version of the job."""

    id: int
    epoch: int
    name: str


def test_rows_of_before_and_after_a_change_of_columns(kind: str, place: Path, tmp_path: Path) -> None:
    writing = Writing(kind, place, tmp_path / "root", make_sink(kind, str(place), commit_every=HOUR))
    first = writing.write(1, 1)
    writer = writing.sink.create_writer(SinkContext("sink", "job", 2, 0, "b", 2, str(writing.root)))
    writer.write(Batch([Named(2, 2, "two")], type=type_of(Named)))
    writing.committer().commit_together([first, EpochOutput(epoch=2, committables=writer.prepare_commit())], 2)
    assert read(kind, place) == [{"id": 1, "epoch": 1, "name": None}, {"id": 2, "epoch": 2, "name": "two"}]
    assert len(files(kind, place)) == 1


def test_a_table_that_is_gone_is_not_made_anew(kind: str, place: Path, tmp_path: Path) -> None:
    writing = Writing(kind, place, tmp_path / "root", make_sink(kind, str(place), commit_every=HOUR))
    outputs = [writing.write(epoch, epoch) for epoch in range(1, 3)]
    if kind == "delta":
        for file in (place / "_delta_log").iterdir():
            file.unlink()
    else:
        SqlCatalog("default", **catalog(str(place))).drop_table("ns.counts")
    with pytest.raises(fp.ForkpointError, match="is not there any more"):
        writing.committer().commit_together(outputs, 2)
    with pytest.raises(fp.ForkpointError, match="is not there any more"):
        writing.committer().commit_together(outputs, 2)


@pytest.mark.parametrize("every", [timedelta(), 60])
def test_a_duration_that_is_none_is_said(kind: str, place: Path, every: Any) -> None:
    with pytest.raises(ConfigError, match=r"commit_every=.* is not a duration; give one such as timedelta\(minutes=1\)"):
        make_sink(kind, str(place), commit_every=every)
