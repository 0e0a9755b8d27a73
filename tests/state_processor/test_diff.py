"""What two savepoints differ in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from saved_job import EVENTS, build, saved

import forkpoint as fp
from forkpoint.state_processor import SavepointReader, SavepointWriter, diff
from forkpoint.testing import Eof, run_local

edit = SavepointWriter.from_existing_savepoint


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> SavepointReader:
    return saved(tmp_path_factory.mktemp("saved"), parallelism=3, max_parallelism=16)


def by_name(found: Any) -> dict[tuple[str, str], Any]:
    return {(state.uid, state.name): state for state in found.states}


def test_what_a_run_changed(savepoint: SavepointReader, tmp_path: Path) -> None:
    """From a savepoint to a later one, at another parallelism and max parallelism."""
    more = [EVENTS[-1]._replace(user="u1", time=3950), EVENTS[-1]._replace(user="new", time=3960)]
    inputs = [*EVENTS, Eof(savepoint=True), *more, Eof(savepoint=True)]
    run = run_local(build, inputs, state_root=str(tmp_path), restore=savepoint.path, parallelism=2, max_parallelism=10)
    assert run.savepoint is not None
    found = diff(savepoint, run.savepoint)
    states = by_name(found)
    assert (found.same, found.max_parallelism) == (False, (16, 10))
    total = states["everything", "total"]
    assert (total.outcome, total.added, total.removed, total.changed) == ("changed", 1, 0, 1)
    (changed,) = [s for s in total.samples if s.change == "changed"]
    assert changed.place == {"key": "u1"}
    assert changed.after == (changed.before.count + 1, changed.before.sum + more[0].amount)
    amounts = states["everything", "amounts"]
    assert (amounts.added, amounts.changed, amounts.rows_after - amounts.rows_before) == (1, 1, 2)
    (changed,) = [s for s in amounts.samples if s.change == "changed"]
    assert changed.after == [*changed.before, more[0].amount]
    assert states["everything", "timers"].added == 4
    assert {each.uid for each in found.positions} == {"events"}
    watermark = next(each for each in found.watermarks if each.uid == "everything")
    assert (watermark.before, watermark.after) == (3899, 3959)
    table = found.to_arrow().to_pylist()
    assert next(row for row in table if row["name"] == "total")["changed"] == 1


def test_states_that_come_go_and_change_their_types(savepoint: SavepointReader, tmp_path: Path) -> None:
    other = (
        edit(savepoint)
        .rename_state("everything", "sum", "total sum")
        .map("everything", "aged", float, fp.ValueStateDescriptor("aged", float))
        .map("everything", "mean", lambda t: [t.sum], fp.ListStateDescriptor("mean", int))
        .re_key("windows", lambda user: int(user[1:]), int)
        .write(tmp_path / "other")
    )
    states = by_name(diff(savepoint, other, samples=2))
    assert (states["everything", "sum"].outcome, states["everything", "sum"].removed) == ("removed", 7)
    assert (states["everything", "total sum"].outcome, states["everything", "total sum"].added) == ("added", 7)
    aged = states["everything", "aged"]  # equal as Python objects
    assert (aged.outcome, aged.changed, aged.why) == ("changed", 0, "values were LONG and are DOUBLE")
    assert (states["everything", "mean"].outcome, states["everything", "mean"].why) == (
        "other",
        "was aggregating state and is list state",
    )
    assert states["windows", "timers"].why == "its key type was STRING and is LONG"
    assert states["everything", "total"].outcome == "same"


def test_samples_are_as_many_as_asked_for(savepoint: SavepointReader, tmp_path: Path) -> None:
    other = edit(savepoint).map("everything", "sum", lambda s: -s).filter("everything", "key < 'u3'", "aged").write(tmp_path)
    for samples in (0, 2, 100):
        states = by_name(diff(savepoint, other, samples=samples))
        assert len(states["everything", "sum"].samples) == min(samples, 7) == min(samples, states["everything", "sum"].changed)
        assert {s.change for s in states["everything", "aged"].samples} <= {"removed"}
    assert states["everything", "aged"].removed == 4


def test_progress_is_told(savepoint: SavepointReader, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    other = edit(savepoint).with_max_parallelism(8).write(tmp_path, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]
    assert len({total for _, total in told}) == 1
    told.clear()
    diff(savepoint, other, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(savepoint.states),) * 2
