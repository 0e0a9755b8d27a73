"""The commit protocol holds whoever sleeps, wakes up or dies at whichever step, and the model would see it if it didn't.

``EXAMPLES=other`` (``make explore``) goes deeper: every schedule of the kinds below with all readers, and more drawn ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from protocol_ledger import LedgerCommitter, LedgerSink, in_turn
from protocol_model import (
    Model,
    Report,
    Segment,
    Stop,
    comes_late,
    deaths_beside,
    drawn,
    explore,
    killed_once,
    kills,
    sleeps,
    takes_over,
    three,
)

from forkpoint.checkpoint import gc
from forkpoint.checkpoint.history import History
from forkpoint.connectors.files.sink import FileSink
from forkpoint.driver.commit.publisher import Publisher
from forkpoint.driver.start.starter import Starter
from forkpoint.errors import NotFound

pytestmark = pytest.mark.hypothesis  # for `make explore`

DEEP = os.environ.get("EXAMPLES", "same") != "same"
READERS = ("none", "half", "greedy") if DEEP else ("half",)


@contextmanager
def modelled(**options: Any) -> Iterator[Model]:
    model = Model(**options)
    try:
        yield model
    finally:
        model.close()


@pytest.mark.parametrize(
    ("schedules", "every"),
    [(sleeps, 67), (kills, 83), (deaths_beside, 131), (three, 181)],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_every_interleaving(schedules: Any, every: int) -> None:
    """Two drivers with two switches, or a kill, before any of their steps; three of them, two asleep."""
    with modelled() as model:
        report = explore(model, schedules, READERS, every=1 if DEEP else every)
    assert not report.violations, report


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"fine": True, "retained": 2, "numbers": 8}], ids=str)
def test_schedules_that_nobody_chose(options: dict[str, Any]) -> None:
    """Three drivers, up to eight switches, some kills."""
    seed = int.from_bytes(os.urandom(4)) if DEEP else 1
    with modelled(**options) as model:
        report = explore(model, partial(drawn, seed=seed), ("half",), most=5000 if DEEP else 60)
    assert not report.violations, f"seed {seed}: {report}"


RESCALES = {"rescales": {1: 3, 2: 2}, "numbers": 8}


@pytest.mark.parametrize(
    ("schedules", "every"),
    [(sleeps, 211), pytest.param(kills, 263, marks=pytest.mark.slow), (deaths_beside, 367), (three, 601)],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_every_interleaving_of_drivers_that_rescale(schedules: Any, every: int) -> None:
    """Each commits two further manifests of kind "start"."""
    with modelled(**RESCALES) as model:
        report = explore(model, schedules, READERS, every=1 if DEEP else every)
    assert not report.violations, report


def test_a_driver_of_the_model_rescales() -> None:
    with modelled(**RESCALES) as model, model.patched():
        world = model.run([Segment(0)])
    manifests = [json.loads(world.files[path]) for path in sorted(world.files) if path.endswith(".json")]
    assert [m["parallelism"] for m in manifests if m.get("kind") == "start"] == [2, 3, 2]


def test_a_manifest_is_cleaned_up_before_a_starting_driver_looks_at_it() -> None:
    """Found by a schedule that nobody chose: the start ended with NotFound."""
    steps = [(0, 5), (1, 1), (0, 18), (1, 2), (1, 3)]
    with modelled(fine=True, retained=2, numbers=8) as model, model.patched():
        model.run([Segment(driver, until) for driver, until in steps], "half")


@pytest.mark.parametrize(
    ("schedules", "every"),
    [(sleeps, 263), (kills, 331), (deaths_beside, 547), (three, 877)],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_every_interleaving_of_commits_by_tasks(schedules: Any, every: int) -> None:
    """Drivers that are two epochs behind in publishing sleep, wake up or die before any step, those of a commit included."""
    with modelled(sink=LedgerSink, numbers=8) as model, in_turn():
        report = explore(model, schedules, ("none",), every=1 if DEEP else every)
    assert not report.violations, report


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"numbers": 10}, {"retained": 2, "rescales": {1: 3, 2: 2}, "numbers": 10}], ids=str)
def test_schedules_of_commits_by_tasks_that_nobody_chose(options: dict[str, Any]) -> None:
    seed = int.from_bytes(os.urandom(4)) if DEEP else 2
    with modelled(sink=LedgerSink, **options) as model, in_turn():
        report = explore(model, partial(drawn, seed=seed), ("none",), most=5000 if DEEP else 60)
    assert not report.violations, f"seed {seed}: {report}"


DRAINS: dict[str, Any] = {"stops": {0: Stop(2, drain=True)}, "numbers": 8}
STANDBYS: dict[str, Any] = {"standbys": (1, 2), "numbers": 8}
LATE: dict[str, Any] = {"stops": {0: Stop(1)}, "late": (1,), "retained": 50}


@pytest.mark.parametrize(
    ("sink", "schedules", "every"),
    [
        pytest.param(
            sink,
            schedules,
            every,
            id=f"{name}-{schedules.__name__}-{every}",
            marks=pytest.mark.slow if (name, schedules) in (("files", kills), ("tasks", sleeps)) else [],
        )
        for name, sink in (("files", FileSink.text), ("tasks", LedgerSink))
        for schedules, every in ((killed_once, 2), (kills, 331), (sleeps, 479))
    ],
)
def test_a_driver_dies_while_it_publishes_the_output_of_a_drain(sink: Any, schedules: Any, every: int) -> None:
    """The next start is refused, with all that is committed published; and one that is to go on nevertheless finds the rest."""
    with modelled(sink=sink, **DRAINS) as model, in_turn():
        report = explore(model, schedules, READERS if sink is FileSink.text else ("none",), every=1 if DEEP else every)
    assert not report.violations, report


def test_one_of_two_standbys_takes_over_and_the_other_one_stands_by_again() -> None:
    """Whatever step of the take-over the other one comes at. None ends with an error."""
    with modelled(**STANDBYS) as model:
        report = explore(model, partial(takes_over, step=1 if DEEP else 10), READERS, every=1 if DEEP else 83)
    assert not report.violations, report


def test_a_start_from_a_savepoint_comes_late() -> None:
    """The job has been started by hand meanwhile, and runs or has ended."""
    with modelled(**LATE) as model:
        report = explore(model, comes_late, READERS, every=1 if DEEP else 47)
    assert not report.violations, report


# -- the model finds what there was to find


def removes_all(history: History, manifest: Any) -> None:
    """Names are free again once they are cleaned up."""
    history.storage.delete(history.paths.manifest(manifest.epoch))


def naive_commit(self: FileSink, committables: Sequence[Any], epoch: int) -> None:
    """It ends at the first file that is missing."""
    for each in committables:
        staged, final = Path(each["staged"]), Path(each["final"])
        if not staged.exists() and not final.exists():
            raise NotFound("it is missing")
        if not final.exists():
            file_path(staged).rename(final)


def file_path(path: Path) -> Any:
    from protocol_model import ModelPath

    return ModelPath(path)


def unbounded(cleanup: Callable[..., None]) -> Callable[..., None]:
    return lambda self, uid, job, generation: cleanup(self, uid, job, 10**9)


def never(*_: Any) -> None:
    """No look at what the newest run is."""


NO_FENCES = patch.object(History, "remove", removes_all)
NO_CHECK = patch.multiple(History, _must_be_newest=never, _check_not_gone=never)
UNBOUNDED = patch.object(FileSink, "cleanup", unbounded(FileSink.cleanup))
NAIVE = patch.object(FileSink, "commit", naive_commit)


def found(schedules: Any, reader: str, *faults: Any) -> Report:
    with modelled(faults=faults) as model:
        return explore(model, schedules, (reader,), every=3, enough=12)


UNNAMED = patch.object(Starter, "_must_succeed", never)


def test_it_finds_a_late_start_that_does_not_say_which_run_it_succeeds() -> None:
    with modelled(faults=[UNNAMED], **LATE) as model:
        assert explore(model, comes_late, ("none",), every=5, enough=3).said("published more than once")


def test_it_finds_a_standby_that_buries_another_one() -> None:
    with modelled(faults=[UNNAMED], **STANDBYS) as model:
        assert explore(model, takes_over, ("none",), every=5, enough=3).said("ended with StaleGeneration")


def test_it_finds_a_drain_that_is_refused_before_its_output_is_published() -> None:
    with modelled(faults=[patch.object(Starter, "publish", never)], **DRAINS) as model:
        assert explore(model, killed_once, ("none",), enough=1).said("refused with")


def test_it_finds_a_fence_that_is_collected() -> None:
    assert found(sleeps, "none", NO_FENCES, NO_CHECK).said("published more than once")


@pytest.mark.slow
def test_it_finds_a_commit_that_is_not_checked() -> None:
    """Of a driver that was restored while the epoch it is to begin with came, and was cleaned up."""
    assert found(sleeps, "none", NO_CHECK).violations


@pytest.mark.slow
def test_a_fence_that_somebody_removed_does_not_let_an_old_driver_publish() -> None:
    report = found(sleeps, "half", NO_FENCES)
    assert not report.said("published more than once"), report
    assert not report.said("lost"), report


def test_it_finds_a_cleanup_of_what_is_not_its_own() -> None:
    report = found(sleeps, "none", UNBOUNDED, NO_CHECK)
    assert report.said("removes .part-"), report
    assert report.said("lost: "), report


@pytest.mark.slow
def test_it_finds_publishing_that_ends_where_something_was_taken() -> None:
    assert found(kills, "half", NAIVE).said("lost: ")


def found_in_tasks(schedules: Any, *faults: Any) -> Report:
    with modelled(sink=LedgerSink, numbers=8, faults=faults) as model, in_turn():
        return explore(model, schedules, ("none",), every=3, enough=3)


def test_it_finds_a_commit_that_does_not_look_at_what_was_sent() -> None:
    assert found_in_tasks(kills, patch.object(LedgerCommitter, "sent", lambda _: 0)).said("published more than once")


def test_it_finds_output_that_is_visible_before_its_epoch_is_committed() -> None:
    early = patch.object(LedgerCommitter, "pre_commit", lambda self, output: self.commit(output, output.epoch))
    assert found_in_tasks(kills, early).violations


@pytest.mark.slow
def test_it_finds_a_commit_that_fences_nobody() -> None:
    unfenced = patch.object(LedgerCommitter, "begin", lambda _: None)
    assert found_in_tasks(sleeps, unfenced).said("published more than once")


def test_it_finds_manifests_that_forget_what_is_unpublished() -> None:
    assert found_in_tasks(kills, patch.object(Publisher, "unpublished", lambda _: {})).said("lost: ")


def test_it_finds_staged_files_that_are_removed_too_early() -> None:
    own_only = patch.object(gc, "staged_epochs", lambda manifests: {m.epoch for m in manifests})
    assert found_in_tasks(kills, own_only).violations
