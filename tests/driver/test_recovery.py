"""A job whose newest checkpoint is damaged comes back from the newest one that is whole, or from a savepoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import JOB, Click, Crash, StopAfter, clicks, finish, history, job, run, state_of, sums

import forkpoint as fp
from forkpoint.api.execution import prepare
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.manifest import JOB as JOB_FILE
from forkpoint.checkpoint.manifest import RUN
from forkpoint.driver.run import epochs as driver_epochs
from forkpoint.driver.start.recovery import RecoveryPlan, plan_recovery
from forkpoint.driver.start.recovery import recover as bring_back
from forkpoint.errors import SavepointCorrupt
from forkpoint.savepoint.catalog.listing import list_savepoints, readable
from forkpoint.savepoint.format.opened_savepoint import open_savepoint

ELEMENTS = clicks(200)


@pytest.fixture(autouse=True)
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_epochs, "SNAPSHOT_CHAIN", 8)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    with pytest.raises(Crash):
        run(tmp_path, ELEMENTS, steps=StopAfter(15))
    assert history(tmp_path).epochs()[-1] == 16
    return tmp_path


def planned(root: Path) -> RecoveryPlan:
    past = history(root)
    return plan_recovery(past, readable(list_savepoints(past.storage, JOB)))


def recover(root: Path) -> RecoveryPlan:
    plan = planned(root)
    bring_back(history(root), plan)
    return plan


def manifest_file(root: Path, epoch: int) -> Path:
    past = history(root)
    return root / past.paths.manifest(epoch)


def finishes(root: Path) -> None:
    assert run(root, ELEMENTS).outcome == "finished"
    assert state_of(root) == sums(ELEMENTS)


@pytest.mark.parametrize("content", [b"", b"\0" * 512, b"{}", b'{"format_version": 1, "job": "sums"'])
@pytest.mark.parametrize("savepoint", [None, "none"])
def test_a_damaged_newest_manifest(crashed: Path, content: bytes, savepoint: str | None) -> None:
    manifest_file(crashed, 16).write_bytes(content)
    with pytest.raises(SavepointCorrupt, match=f"`forkpoint recover {JOB}` restores the job"):
        run(crashed, ELEMENTS, savepoint=savepoint)
    plan = recover(crashed)
    assert plan.chosen is not None
    assert (plan.chosen.kind, plan.chosen.epoch, plan.lost.epochs, plan.fenced) == ("checkpoint", 15, (16,), (16,))
    newest = history(crashed).newest()
    assert newest is not None
    assert newest.epoch > 16
    assert newest.parent.epoch == 15
    assert planned(crashed).undamaged
    finishes(crashed)
    assert 16 not in history(crashed).epochs()


def test_several_damaged_manifests_and_what_is_lost_with_them(crashed: Path) -> None:
    for epoch in (11, 16):
        manifest_file(crashed, epoch).write_bytes(b"")
    past = history(crashed)
    changes = [ref for epoch in (14, 15) for ref in past.load(epoch).changes]
    plan = recover(crashed)
    assert plan.chosen is not None
    if plan.chosen.epoch > 11:  # a snapshot covers it
        assert changes
    assert {11, 16} <= set(plan.fenced)
    assert plan.lost.elements == 5 * len([epoch for epoch in plan.lost.epochs if epoch != 16])
    finishes(crashed)


def test_a_missing_and_a_changed_file_of_the_state(crashed: Path) -> None:
    past = history(crashed)
    newest = past.load(16)
    assert newest.snapshots
    victim = crashed / newest.snapshots[0].path
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(bytes(data))
    with pytest.raises(SavepointCorrupt, match="forkpoint recover"):
        run(crashed, ELEMENTS)
    plan = recover(crashed)
    assert plan.chosen is not None
    assert plan.chosen.epoch < newest.snapshots[0].epoch + 2
    assert "SHA-256" in (plan.checked[0].problem or "")
    finishes(crashed)


def test_from_a_savepoint_where_no_checkpoint_is_whole(tmp_path: Path) -> None:
    class Saving(StopAfter):
        driver = None

    steps = Saving(10)
    prepared = job(tmp_path, ELEMENTS, steps=steps)
    request = prepared.driver.savepoint()
    with pytest.raises(Crash):
        finish(prepared)
    assert request.done.result(10)
    past = history(tmp_path)
    newest = past.epochs()[-1]
    for epoch in past.epochs():
        manifest_file(tmp_path, epoch).write_bytes(b"")
    plan = recover(tmp_path)
    assert plan.chosen is not None
    assert plan.chosen.kind == "savepoint"
    manifest = past.newest()
    assert manifest is not None
    assert manifest.epoch > newest
    finishes(tmp_path)


def test_what_a_savepoint_says_of_time_is_kept(tmp_path: Path) -> None:
    def timed(env: fp.StreamExecutionEnvironment, uid: str) -> fp.DataStream[Click]:
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda click, _: click.ts)
        return env.from_collection(ELEMENTS, Click).uid(uid).assign_timestamps_and_watermarks(strategy).uid(f"{uid}-times")

    class Saving(StopAfter):
        request = None

        def on_step(self, step: str, epoch: int) -> None:
            if self.request is None and epoch == 3:
                self.request = prepared.driver.savepoint()
            super().on_step(step, epoch)

    class Both(fp.CoMapFunction):
        def map1(self, value: Click) -> int:
            return value.user

        map2 = map1

    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(tmp_path)).set_max_epoch_rows(20)
    both = timed(env, "left").connect(timed(env, "right")).map(Both(), int).uid("both")
    both.sink_to(fp.DiscardSink()).uid("sink")
    steps = Saving(6)
    env.launch = Launch(options={"engine": "local"}, steps=steps)
    prepared = prepare(env, JOB)
    with pytest.raises(Crash):
        finish(prepared)
    assert steps.request is not None
    saved = open_savepoint(steps.request.done.result(10)).savepoint
    assert saved.watermarks
    assert saved.input_watermarks
    for epoch in history(tmp_path).epochs():
        manifest_file(tmp_path, epoch).write_bytes(b"")
    recover(tmp_path)
    manifest = history(tmp_path).newest()
    assert manifest is not None
    assert (manifest.sources, manifest.watermarks) == (saved.sources, saved.watermarks)
    assert manifest.input_watermarks == saved.input_watermarks


def test_nothing_is_done_where_nothing_is_damaged(crashed: Path) -> None:
    before = history(crashed).storage.list("")
    plan = recover(crashed)
    assert plan.undamaged
    assert not plan.fenced
    assert history(crashed).storage.list("") == before
    finishes(crashed)


def test_recovery_cut_short_is_given_again(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest_file(crashed, 16).write_bytes(b"")
    plan, past = planned(crashed), history(crashed)

    def killed(self: object, path: str, data: bytes) -> None:
        raise Crash

    monkeypatch.setattr(type(past.storage), "put", killed)
    with pytest.raises(Crash):
        bring_back(past, plan)
    monkeypatch.undo()
    assert recover(crashed).fenced == (16,)
    finishes(crashed)


@pytest.mark.parametrize("content", [b"", b"garbage", b"[]"])
def test_records_for_people_stop_nobody(crashed: Path, content: bytes) -> None:
    paths = history(crashed).paths
    (crashed / paths.job_file).write_bytes(content)
    for record in (crashed / paths.runs).glob("*/run.json"):
        record.write_bytes(content)
    assert JOB_FILE.load_if_whole(history(crashed).storage, paths.job_file) is None
    finishes(crashed)
    assert RUN.load(history(crashed).storage, paths.run_file(history(crashed).newest().run)).outcome == "finished"  # type: ignore[union-attr]


def test_a_drained_job_is_whole(tmp_path: Path) -> None:
    prepared = job(tmp_path, ELEMENTS)
    request = prepared.driver.savepoint(stop=True, drain=True)
    assert finish(prepared).outcome == "stopped"
    assert request.done.result(10)
    assert planned(tmp_path).undamaged
