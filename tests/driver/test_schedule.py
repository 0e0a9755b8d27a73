"""Savepoints at intervals, by the job's clock, and which of them stay."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.checkpoint.manifest import RUN, Parent
from forkpoint.checkpoint.paths import SAVEPOINT_FILE, JobPaths
from forkpoint.checkpoint.savepoint_manifest import Savepoint, Versions
from forkpoint.driver.savepoints.schedule import Schedule
from forkpoint.errors import ConfigError
from forkpoint.graph.options import RestoreOptions, SavepointSchedule
from forkpoint.savepoint.catalog.dispose import Retention, expired, remove_expired
from forkpoint.savepoint.catalog.labels import set_label
from forkpoint.savepoint.catalog.listing import list_savepoints
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from forkpoint.storage.base import LocalStorage
from forkpoint.testing import Advance, Eof, ManualClock, run_local

HOUR_MS = 3_600_000


def settled(n: int) -> int:
    """Lets what goes on in the background come to its end, so that it is done before the clock moves."""
    for thread in threading.enumerate():
        if thread.name.startswith("forkpoint-savepoint-"):
            thread.join()
    return n


def build(env: Any, source: Any) -> Any:
    numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in").map(settled).uid("settled")
    return numbers.key_by(lambda n: n % 3, int).map_with_state(lambda n, s: (n, (s or 0) + n), int).uid("sums")


def run(root: Path, script: list[Any], schedule: SavepointSchedule | None, clock: ManualClock, **options: Any) -> Any:
    return run_local(
        build,
        script,
        state_root=str(root),
        clock=clock,
        epochs=1,
        parallelism=1,
        options={"savepoint_schedule": schedule},
        **options,
    )


def scheduled(root: Path, job: str = "test") -> list[Savepoint]:
    listed = list_savepoints(LocalStorage(str(root)), job)
    return [each.savepoint for each in listed if each.savepoint is not None and each.savepoint.schedule_ms is not None]


def ticks(hours: list[float]) -> list[Any]:
    return [each for number, h in enumerate(hours) for each in (number, Advance(timedelta(hours=h)), number)]


def test_one_an_interval_while_there_is_something_new(tmp_path: Path) -> None:
    clock = ManualClock()
    began_ms = clock()
    run(tmp_path, [*ticks([0.4, 0.4, 0.4, 3.0, 0.2, 1.0]), 7, 8, Eof()], SavepointSchedule(HOUR_MS), clock)
    made = scheduled(tmp_path)
    assert [(s.created_ms - began_ms) / HOUR_MS for s in made] == pytest.approx([1.2, 4.2, 5.4])
    assert len({s.epoch for s in made}) == 3
    assert {(s.schedule_ms, s.label) for s in made} == {(HOUR_MS, None)}


def test_a_run_that_starts_anew_goes_on_with_the_interval(tmp_path: Path) -> None:
    """Else a job that is started again every half an hour would never get one."""
    clock = ManualClock()
    for start in range(4):
        script = [0, Advance(timedelta(hours=0.4)), 1, 2, Eof(savepoint=True)] * 4  # it goes on where it stopped
        run(tmp_path, script, SavepointSchedule(HOUR_MS), clock, restore="latest" if start else None)
        clock.advance(timedelta(hours=0.4))
    assert 2 <= len(scheduled(tmp_path)) <= 3


def test_old_ones_go_and_those_that_matter_stay(tmp_path: Path) -> None:
    clock, place = ManualClock(), tmp_path / "jobs"
    schedule = SavepointSchedule(HOUR_MS, keep_last=2)
    run(place, [*ticks([1] * 3), 7, 7, Eof(savepoint=True)], schedule, clock)
    first = scheduled(place)
    assert len(first) == 2
    storage = LocalStorage(str(place))
    named = JobPaths("test").savepoint(first[0].id)
    set_label(first[0], storage, named, "mine", None)
    assert open_savepoint(storage, named).savepoint.label == "mine"
    run(place, [*ticks([1] * 6), 7, 7, Eof()], schedule, clock, restore="latest")
    left = scheduled(place)
    assert [s.label for s in left] == ["mine", None, None]
    asked = [each for each in list_savepoints(storage, "test") if each.savepoint and each.savepoint.schedule_ms is None]
    assert len(asked) == 1  # by hand: not the schedule's business


@pytest.mark.parametrize("prefix", ["", "file:"])
def test_another_directory(tmp_path: Path, prefix: str) -> None:
    clock, elsewhere = ManualClock(), tmp_path / "elsewhere"
    schedule = SavepointSchedule(HOUR_MS, directory=f"{prefix}{elsewhere}", keep_last=1)
    (elsewhere / "mine").mkdir(parents=True)
    (elsewhere / "mine" / "notes.txt").write_text("of somebody else")
    run(tmp_path / "root", [*ticks([1] * 4), 7, 7, Eof()], schedule, clock)
    assert scheduled(tmp_path / "root") == []
    assert len([place for place in elsewhere.iterdir() if (place / SAVEPOINT_FILE).exists()]) == 1
    assert (elsewhere / "mine" / "notes.txt").exists()


def test_what_fails_is_tried_again_when_the_next_is_due(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, wrong = ManualClock(), tmp_path / "a file"
    wrong.write_text("in the way")
    result = run(tmp_path / "root", [*ticks([1, 1]), 7, Eof()], SavepointSchedule(HOUR_MS, directory=str(wrong)), clock)
    assert result.outcome == "cancelled"
    assert "scheduled savepoint failed" in caplog.text


# -- the rules ---------------------------------------------------------------------------------------------------------


def savepoint(number: int, **fields: Any) -> Savepoint:
    made: dict[str, Any] = {
        "id": f"s{number}",
        "job": "test",
        "run": "r",
        "epoch": number,
        "created_ms": number * HOUR_MS,
        "versions": Versions(forkpoint="1", python="3"),
        "max_parallelism": 8,
        "parallelism": 1,
        "schedule_ms": HOUR_MS,
    }
    return Savepoint(**(made | fields))


def gone(savepoints: list[Savepoint], last: int | None = None, hours: int | None = None) -> list[str]:
    retention = Retention(last, None if hours is None else hours * HOUR_MS)
    return [each.id for each in expired(savepoints, retention, 10 * HOUR_MS)]


def test_who_fulfils_a_rule_stays() -> None:
    eight = [savepoint(number) for number in range(1, 9)]
    assert gone(eight) == []
    assert gone(eight, last=3) == ["s1", "s2", "s3", "s4", "s5"]
    assert gone(eight, hours=4) == ["s1", "s2", "s3", "s4", "s5"]
    assert gone(eight, last=2, hours=5) == ["s1", "s2", "s3", "s4"]
    assert gone(eight, last=6, hours=5) == ["s1", "s2"]
    assert gone(eight, hours=1) == [f"s{number}" for number in range(1, 8)]  # never the newest


@given(
    st.lists(
        st.builds(
            lambda schedule, label, note, edited: {
                "schedule_ms": schedule,
                "label": label,
                "note": note,
                "edited": edited,
            },
            st.sampled_from([None, HOUR_MS]),
            st.sampled_from([None, "l"]),
            st.sampled_from([None, "n"]),
            st.booleans(),
        ),
        max_size=12,
    ),
    st.integers(1, 5),
    st.integers(1, 12) | st.none(),
)
def test_only_what_nobody_asked_for_goes(fields: list[dict[str, Any]], last: int, hours: int | None) -> None:
    all_ = [savepoint(number, **each) for number, each in enumerate(fields)]
    ours = [s.id for s in all_ if s.schedule_ms is not None and s.label is s.note is None and not s.edited]
    found = gone(all_, last, hours)
    assert set(found) <= set(ours[:-last])
    assert not all_ or all_[-1].id not in found
    if hours is None:
        assert found == ours[:-last]


def test_what_a_run_started_from_stays_until_that_has_ended(tmp_path: Path) -> None:
    clock = ManualClock()
    run(tmp_path, [*ticks([1] * 4), 7, Eof()], SavepointSchedule(HOUR_MS), clock)
    first, second, *_ = scheduled(tmp_path)
    storage, keep = LocalStorage(str(tmp_path)), Retention(keep_last=1)
    forked = replace(RestoreOptions(), savepoint=str(tmp_path / JobPaths("test").savepoint(first.id)))
    run(tmp_path, [1, 2, 3, 4], None, clock, restore=forked, job_name="fork")
    (path,) = [path for path in storage.list("jobs/fork/runs") if path.endswith("run.json")]
    ended = RUN.load(storage, path)
    assert ended.parent.savepoint_id == first.id
    storage.put(path, RUN.dump(ended.replace(ended_ms=None, outcome=None)))

    def remove() -> list[str]:
        return remove_expired(storage, storage, JobPaths("test").savepoints, "test", keep, clock())

    removed = remove()
    assert second.id in removed
    assert first.id not in removed
    storage.put(path, RUN.dump(ended))
    assert remove() == [first.id]
    assert len(scheduled(tmp_path)) == 1


def test_what_another_savepoint_grew_from_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    run(tmp_path, [*ticks([1] * 3), 7, Eof()], SavepointSchedule(HOUR_MS), clock)
    first, *_ = scheduled(tmp_path)
    place = str(tmp_path / JobPaths("test").savepoint(first.id))
    run(tmp_path, [*ticks([1] * 3), 7, Eof(savepoint=True)], None, clock, restore=place, job_name="fork")
    storage = LocalStorage(str(tmp_path))
    removed = remove_expired(storage, storage, JobPaths("test").savepoints, "test", Retention(keep_last=1), clock())
    assert removed
    assert first.id not in removed


class Killed(BaseException):
    pass


class Dying(LocalStorage):
    """The process dies at the n-th deletion."""

    left = 0

    def delete(self, path: str) -> None:
        if Dying.left == 0:
            raise Killed
        Dying.left -= 1
        super().delete(path)


@pytest.mark.parametrize("deletions", [0, 1, 2, 3])
def test_killed_while_it_removes_one(tmp_path: Path, deletions: int) -> None:
    """What is left is whole, or no savepoint; and the next one to clean up goes on."""
    clock = ManualClock()
    run(tmp_path, [*ticks([1] * 3), 7, Eof()], SavepointSchedule(HOUR_MS), clock)
    before = len(scheduled(tmp_path))
    Dying.left = deletions
    dying, storage = Dying(str(tmp_path)), LocalStorage(str(tmp_path))
    head, keep = JobPaths("test").savepoints, Retention(keep_last=1)
    with pytest.raises(Killed):
        remove_expired(storage, dying, head, "test", keep, clock())
    assert len(scheduled(tmp_path)) == before - (deletions > 0)
    for each in scheduled(tmp_path):
        open_savepoint(storage, JobPaths("test").savepoint(each.id))
    remove_expired(storage, storage, head, "test", keep, clock())
    assert len(scheduled(tmp_path)) == 1


def test_two_drivers_remove_the_same(tmp_path: Path) -> None:
    clock = ManualClock()
    run(tmp_path / "a", [*ticks([1] * 4), 7, Eof()], SavepointSchedule(HOUR_MS), clock)
    storage, head, keep = LocalStorage(str(tmp_path / "a")), JobPaths("test").savepoints, Retention(keep_last=1)

    class Overtaken(LocalStorage):
        """Whenever this one deletes, the other one has."""

        def delete(self, path: str) -> None:
            remove_expired(storage, storage, head, "test", keep, clock())
            super().delete(path)

    remove_expired(storage, Overtaken(str(tmp_path / "a")), head, "test", keep, clock())
    assert len(scheduled(tmp_path / "a")) == 1


def test_a_run_that_was_replaced_removes_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    run(tmp_path, [*ticks([1] * 4), 7, Eof()], SavepointSchedule(HOUR_MS), clock)
    from forkpoint.checkpoint.history import History

    history = History(LocalStorage(str(tmp_path)), JobPaths("test"))
    assert Schedule(SavepointSchedule(HOUR_MS, keep_last=1), history, "stale", None, clock).remove_expired() == []
    newest = history.newest()
    assert newest is not None
    assert Schedule(SavepointSchedule(HOUR_MS, keep_last=1), history, newest.run, None, clock).remove_expired()


def test_a_claimed_savepoint_goes_once_the_run_has_its_state_and_another_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    path = Path(run(tmp_path, [1, 2, Eof(savepoint=True)], None, clock).savepoint.removeprefix("file://"))
    shutil.copytree(path, tmp_path / "copy")
    run(tmp_path, [1, 2, 3, 4], None, clock, restore=RestoreOptions(savepoint=str(path)), job_name="one")
    assert open_savepoint(str(path)).savepoint.job == "test"
    claimed = run(tmp_path, [1, 2, 3, 4], None, clock, restore=RestoreOptions(savepoint=str(path), claim=True), job_name="two")
    assert claimed.outcome == "finished"
    assert not path.exists()
    storage = LocalStorage(str(tmp_path))
    parent = next(RUN.load(storage, path) for path in storage.list("jobs/two/runs") if path.endswith("run.json"))
    assert parent.parent == Parent(
        kind="savepoint",
        job="test",
        run=parent.parent.run,
        epoch=parent.parent.epoch,
        savepoint_id=path.name,
        savepoint_path=parent.parent.savepoint_path,
    )


def test_a_claimed_savepoint_stays_while_a_fork_of_it_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As `dispose` refuses it. It goes with a claim after that."""
    clock = ManualClock()
    path = Path(run(tmp_path, [1, 2, Eof(savepoint=True)], None, clock).savepoint.removeprefix("file://"))
    run(tmp_path, [1, 2, 3], None, clock, restore=RestoreOptions(savepoint=str(path)), job_name="fork")
    storage = LocalStorage(str(tmp_path))
    record = next(each for each in storage.list("jobs/fork/runs") if each.endswith("run.json"))
    ended = RUN.load(storage, record)
    storage.put(record, RUN.dump(ended.replace(ended_ms=None, outcome=None)))
    claim = RestoreOptions(savepoint=str(path), claim=True)
    run(tmp_path, [1, 2, 3, 4], None, clock, restore=claim, job_name="two")
    assert open_savepoint(str(path)).savepoint.job == "test"
    assert f"was kept, because of run {ended.run!r} of job 'fork'" in caplog.text
    storage.put(record, RUN.dump(ended))
    run(tmp_path, [1, 2, 3, 4], None, clock, restore=claim, job_name="three")
    assert not path.exists()


def test_a_claimed_savepoint_stays_until_the_first_epoch_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    path = Path(run(tmp_path, [1, 2, Eof(savepoint=True)], None, clock).savepoint.removeprefix("file://"))

    def fails(rows: Any) -> None:
        raise ConfigError("no good")

    claim = RestoreOptions(savepoint=str(path), claim=True)
    with monkeypatch.context() as failing:
        failing.setattr("forkpoint.driver.run.epochs.raise_failure", fails)
        with pytest.raises(ConfigError, match="no good"):
            run(tmp_path, [1, 2, 3, 4], None, clock, restore=claim, job_name="two")
    assert open_savepoint(str(path)).savepoint.job == "test"
    run(tmp_path, [1, 2, 3, 4], None, clock, restore=claim, job_name="two")
    assert not path.exists()


def test_options() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_savepoint_schedule(timedelta(hours=1), keep_last=3, keep_for=timedelta(days=7))
    assert env.options.savepoint_schedule == SavepointSchedule(HOUR_MS, None, 3, 7 * 24 * HOUR_MS)
    env.configure({"periodic.savepoint.interval": "30 min"})
    assert env.options.savepoint_schedule == SavepointSchedule(HOUR_MS // 2, None, 3, 7 * 24 * HOUR_MS)
    noted: Any = {"interval_ms": 5, "keep_last": None, "keep_for_ms": 9}
    assert replace(env.options, savepoint_schedule=noted).savepoint_schedule == SavepointSchedule(5, keep_for_ms=9)
    with pytest.raises(ConfigError, match=r"periodic\.savepoint\.interval"):
        fp.StreamExecutionEnvironment.get_execution_environment().configure({"savepoint.history.max.count": 3})
    for wrong in ({"keep_last": 0}, {"keep_for": timedelta(0)}):
        with pytest.raises(ConfigError):
            env.set_savepoint_schedule(timedelta(hours=1), **wrong)  # type: ignore[arg-type]
