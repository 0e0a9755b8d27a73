"""Commits of table sinks beside others: another attempt at the same one, an older driver, other writers, an older state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from forkpoint.contract.sink import CommitterContext, SinkContext
from forkpoint.errors import JobFailed, NotFound, SystemUnavailable
from table_jobs import catalog, make_sink
from table_reading import files, iceberg
from table_writing import Batch, Row, Writing


@pytest.fixture(params=["append", "upsert"])
def writing(request: pytest.FixtureRequest, kind: str, place: Path, tmp_path: Path) -> Writing:
    options: dict[str, Any] = {"mode": "upsert", "key": ("id",)} if request.param == "upsert" else {}
    return Writing(kind, place, tmp_path / "root", make_sink(kind, str(place), **options))


def test_a_commit_goes_on_after_what_was_committed(writing: Writing) -> None:
    first, second = writing.write(1, 1, 2), writing.write(2, 3)
    for output in (first, first, second, first, second):
        writing.committer().commit(output, 2)
    assert writing.rows() == [(1, 1), (2, 1), (3, 2)]


@pytest.mark.parametrize("step", ["_committed", "_commit"])
def test_a_task_that_sleeps_while_others_commit_adds_nothing(
    writing: Writing, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    outputs = [writing.write(1, 1, 2), writing.write(2, 2, 3)]
    kind = writing.committer_class
    usual = getattr(kind, step)
    others: list[Callable[[], None]] = [lambda: [writing.committer().commit(each, 2) for each in outputs]]  # type: ignore[func-returns-value,list-item]

    def sleeps(self: Any, *arguments: Any) -> Any:
        result = usual(self, *arguments) if step == "_committed" else None
        if others:
            others.pop()()
        return usual(self, *arguments) if step == "_commit" else result

    monkeypatch.setattr(kind, step, sleeps)
    slow = writing.committer()
    slow.commit(outputs[0], 2)
    slow.commit(outputs[1], 2)
    assert not others
    upsert = "changes" in outputs[0].committables[0]
    assert writing.rows() == ([(1, 1), (2, 2), (3, 2)] if upsert else [(1, 1), (2, 1), (2, 2), (3, 2)])


def test_another_writer_that_gets_ahead_is_waited_for(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    writing.committer().commit(writing.write(1, 1), 2)
    output = writing.write(2, 2)
    theirs = pa.table({"id": [100], "epoch": [0]}, schema=pa.schema([("id", pa.int64()), ("epoch", pa.int64())]))
    kind = writing.committer_class
    usual, left = kind._commit, [1, 2]

    def late(self: Any, *arguments: Any) -> None:
        if left:
            left.pop()
            if writing.kind == "delta":
                write_deltalake(writing.place, theirs, mode="append")
            else:
                iceberg(writing.place).append(theirs)
        usual(self, *arguments)

    monkeypatch.setattr(kind, "_commit", late)
    writing.committer().commit(output, 2)
    appended = 2 - len(left)
    assert writing.rows() == [(1, 1), (2, 2), *[(100, 0)] * appended]


def test_a_state_root_that_was_put_back_is_refused(writing: Writing) -> None:
    writing.committer().commit(writing.write(9, 1), 9)
    with pytest.raises(JobFailed, match=r"epoch 9 was committed, but the job's newest is 2\..*earlier copy"):
        writing.committer().commit(writing.write(2, 2), 2)


def test_another_job_of_the_name_starts_from_the_beginning(writing: Writing) -> None:
    writing.committer().commit(writing.write(9, 1), 9)
    other = writing.sink.create_committer(CommitterContext("sink", "job", "", "4567", str(writing.root)))
    other.commit(writing.write(1, 2), 1)
    assert writing.rows() == [(1, 9), (2, 1)]


@pytest.fixture
def appending(kind: str, place: Path, tmp_path: Path) -> Writing:
    return Writing(kind, place, tmp_path / "root", make_sink(kind, str(place)))


def test_what_failed_attempts_have_written_is_removed_and_nothing_else(appending: Writing) -> None:
    committer = appending.committer()
    appending.write(1, 666, attempt="failed")
    first = appending.write(1, 1)
    appending.write(2, 666, attempt="failed")
    second, third = appending.write(2, 2), appending.write(3, 3)
    appending.write(4, 666, attempt="going on")
    assert appending.files_there() == 6
    committer.commit(first, 3)
    assert appending.files_there() == 5
    committer.commit(second, 3)
    assert appending.files_there() == 4
    for output in (first, third, second, third):
        appending.committer().commit(output, 3)
    assert appending.files_there() == 4
    assert appending.rows() == [(1, 1), (2, 2), (3, 3)]
    assert len(files(appending.kind, appending.place)) == 3


def test_a_failed_task_removes_what_it_has_written(appending: Writing) -> None:
    writer = appending.sink.create_writer(SinkContext("sink", "job", 1, 0, "a", 1, str(appending.root)))
    writer.write(Batch([Row(1, 1)]))
    writer.prepare_commit()
    assert appending.files_there() == 1
    writer.abort()
    assert appending.files_there() == 0
    assert not list(appending.root.rglob("*.json"))


def test_a_file_that_was_removed_before_its_commit_is_not_added(appending: Writing) -> None:
    output = appending.write(1, 1)
    for file in appending.place.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(NotFound, match=r"has no file .*parquet"):
        appending.committer().commit(output, 1)


def test_a_table_that_is_gone_at_the_commit(appending: Writing) -> None:
    output = appending.write(1, 1)
    if appending.kind == "delta":
        for file in (appending.place / "_delta_log").iterdir():
            file.unlink()
    else:
        load_catalog("default", **catalog(str(appending.place))).drop_table("ns.counts")
    with pytest.raises((JobFailed, NotFound), match="is not there any more"):
        appending.committer().commit(output, 1)


def test_a_table_under_constant_change_is_tried_again_later(appending: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forkpoint_lakehouse.committer._PAUSE_SECONDS", 0.0)
    from forkpoint_lakehouse.format import Conflict

    kind = appending.committer_class

    def refused(*_: Any) -> None:
        raise Conflict("others")

    monkeypatch.setattr(kind, "_commit", refused)
    with pytest.raises(SystemUnavailable, match="10 commits were refused because other writers committed first: others"):
        appending.committer().commit(appending.write(1, 1), 1)


def test_an_iceberg_table_whose_partitions_change_before_the_commit(place: Path, tmp_path: Path) -> None:
    writing = Writing("iceberg", place, tmp_path / "root", make_sink("iceberg", str(place)))
    output = writing.write(1, 1, 2, 2)
    with iceberg(place).update_spec() as spec:
        spec.add_identity("id")
    writing.committer().commit(output, 1)
    assert writing.rows() == [(1, 1), (2, 1), (2, 1)]
    assert len(files("iceberg", place)) == writing.files_there() == 2


def test_an_iceberg_table_that_is_made_anew_before_the_commit(place: Path, tmp_path: Path) -> None:
    writing = Writing("iceberg", place, tmp_path / "root", make_sink("iceberg", str(place)))
    output = writing.write(1, 1, 2)
    found = load_catalog("default", **catalog(str(place)))
    found.drop_table("ns.counts")
    found.create_table("ns.counts", pa.schema([("epoch", pa.int64()), ("x", pa.string()), ("id", pa.int64())]))
    writing.committer().commit(output, 1)
    assert writing.rows() == [(1, 1), (2, 1)]


def test_maintenance_of_a_delta_table_beside_the_job(place: Path, tmp_path: Path) -> None:
    writing = Writing("delta", place, tmp_path / "root", make_sink("delta", str(place)))
    committer = writing.committer()
    for epoch in range(1, 4):
        committer.commit(writing.write(epoch, epoch), epoch)
    staged = writing.write(4, 4)
    DeltaTable(place).optimize.compact()
    assert len(files("delta", place)) == 1
    assert DeltaTable(place).vacuum(full=True, dry_run=False) == []
    DeltaTable(place).create_checkpoint()
    committer.commit(staged, 4)
    assert writing.rows() == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_delta_checkpoints_keep_what_was_committed(place: Path, tmp_path: Path) -> None:
    """The number of the epoch is found in a checkpoint of the table's log, too, when the log before it is gone."""
    writing = Writing("delta", place, tmp_path / "root", make_sink("delta", str(place)))
    first = writing.write(1, 1)
    writing.committer().commit(first, 1)
    DeltaTable(place).create_checkpoint()
    for log in (place / "_delta_log").glob("*.json"):
        log.unlink()
    writing.committer().commit(first, 1)
    assert writing.rows() == [(1, 1)]


def test_iceberg_keeps_what_was_committed_when_its_snapshot_is_gone(place: Path, tmp_path: Path) -> None:
    writing = Writing("iceberg", place, tmp_path / "root", make_sink("iceberg", str(place)))
    first = writing.write(1, 1)
    writing.committer().commit(first, 1)
    table = iceberg(place)
    expired = table.current_snapshot().snapshot_id
    table.overwrite(table.scan().to_arrow())
    iceberg(place).maintenance.expire_snapshots().by_id(expired).commit()
    writing.committer().commit(first, 1)
    assert writing.rows() == [(1, 1)]
