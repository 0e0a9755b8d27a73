"""Garbage collection against a job in miniature, whose state is really restored from the files that are left."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_counts import examples
from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.gc import GcPlan, needed_files, plan_gc
from forkpoint.checkpoint.manifest import ChangesRef, Manifest, SnapshotRef
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import ConfigError, StorageError

PATHS = JobPaths("j")
GROUPS = 6
STATE = StateInfo(sid=1, uid="o", name="s", kind="value")
UNTOUCHABLE = ["jobs/j/job.json", "jobs/j/runs/r1/run.json", "jobs/j/runs/r1/spark/commits/0", "jobs/j/notes.txt"]
State = dict[int, int]


def ranges(parallelism: int) -> list[tuple[int, int]]:
    """Key groups of each subtask, cut like the engine does."""
    first = [next(kg for kg in range(GROUPS + 1) if kg * parallelism >= i * GROUPS) for i in range(parallelism + 1)]
    return list(pairwise(first))


def make_manifest(epoch: int, parallelism: int, changes: list[ChangesRef], snapshots: list[SnapshotRef]) -> Manifest:
    return Manifest(
        job="j",
        run="r",
        generation=1,
        epoch=epoch,
        kind="epoch",
        created_ms=0,
        processing_time_ms=0,
        parallelism=parallelism,
        max_parallelism=GROUPS,
        states=[STATE],
        changes=changes,
        snapshots=snapshots,
    )


@dataclass
class MiniJob:
    """Files hold values by key group; a manifest's file holds the manifest."""

    files: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(UNTOUCHABLE))
    state: State = field(default_factory=dict)
    truth: dict[int, State] = field(default_factory=dict)
    snapshots: list[SnapshotRef] = field(default_factory=list)
    pinned: set[int] = field(default_factory=set)
    epoch: int = -1

    def manifests(self) -> list[Manifest]:
        return [content for content in self.files.values() if isinstance(content, Manifest)]

    def plan(self, num_retained: int) -> GcPlan:
        return plan_gc("j", self.manifests(), self.files, num_retained=num_retained, pinned=self.pinned)

    def write(self, step: Step) -> Manifest:
        """All that an epoch writes before its commit; attempts that were not accepted leave files too."""
        epoch, taken = self.epoch + step.gap, []
        after = {**self.state, **dict.fromkeys(step.touched, epoch)}
        changes = []
        for subtask, (start, stop) in enumerate(ranges(step.parallelism)):
            mine = {kg: after[kg] for kg in step.touched if start <= kg < stop}
            common: dict[str, Any] = {"subtask": subtask, "kg_start": start, "kg_stop": stop, "attempt": "good"}
            common |= {"entries": len(mine), "bytes": 0, "checksum": checksum(b"")}
            for attempt in ("lost", "good"):
                self.files[PATHS.changelog(epoch, 0, subtask, attempt)] = mine
                self.files[PATHS.staging(epoch, "out", f"{subtask}-{attempt}")] = None
            changes.append(ChangesRef(stage=0, path=PATHS.changelog(epoch, 0, subtask, "good"), **common))
            if subtask in step.snapshots and self.epoch >= 0:  # of the state that the epoch starts from
                for attempt in ("lost", f"good{epoch}"):
                    self.files[PATHS.snapshot(self.epoch, subtask, attempt)] = dict(self.state)
                path = PATHS.snapshot(self.epoch, subtask, f"good{epoch}")
                taken.append(SnapshotRef(epoch=self.epoch, path=path, **common))
        replaced = [
            old for old in self.snapshots if not any(new.kg_start <= old.kg_start and old.kg_stop <= new.kg_stop for new in taken)
        ]
        return make_manifest(epoch, step.parallelism, changes, replaced + taken)

    def commit(self, manifest: Manifest, step: Step) -> None:
        self.epoch = manifest.epoch
        self.snapshots = manifest.snapshots
        self.state = {**self.state, **dict.fromkeys(step.touched, self.epoch)}
        self.truth[self.epoch] = self.state
        self.files[PATHS.manifest(self.epoch)] = manifest

    def restore(self, epoch: int) -> State:
        """Only what is in the files counts; a KeyError is a lost file."""
        manifest: Manifest = self.files[PATHS.manifest(epoch)]
        chain = sorted(self.manifests(), key=lambda each: each.epoch)
        state: State = {}
        for kg in range(GROUPS):
            covering = [each for each in manifest.snapshots if each.kg_start <= kg < each.kg_stop]
            newest = max(covering, key=lambda each: each.epoch, default=None)
            values: State = self.files[newest.path] if newest else {}
            for each in chain:
                if (newest.epoch if newest else -1) < each.epoch <= epoch:
                    for change in each.changes:
                        assert change.path is not None
                        values = {**values, **self.files[change.path]}
            if kg in values:
                state[kg] = values[kg]
        return state

    def check(self, plan: GcPlan) -> None:
        for epoch in plan.retained:
            assert self.restore(epoch) == self.truth[epoch]


@dataclass(frozen=True)
class Step:
    gap: int
    parallelism: int
    touched: frozenset[int]
    snapshots: frozenset[int]
    collect: bool
    pin: bool
    unpin: bool


steps = st.builds(
    Step,
    gap=st.sampled_from([1, 1, 1, 3]),
    parallelism=st.sampled_from([1, 2, 2, 2, 3, 7]),
    touched=st.frozensets(st.integers(0, GROUPS - 1)),
    snapshots=st.frozensets(st.integers(0, 3), max_size=4) | st.just(frozenset(range(7))),
    collect=st.booleans(),
    pin=st.booleans(),
    unpin=st.booleans(),
)


def expected_files(job: MiniJob, retained: tuple[int, ...]) -> set[str]:
    """The rule once more, spelled out file by file."""
    kept = set(UNTOUCHABLE)
    manifests = {each.epoch: each for each in job.manifests()}
    for epoch in retained:
        manifest = manifests[epoch]
        covered = {kg for each in manifest.snapshots for kg in range(each.kg_start, each.kg_stop)}
        oldest = min(each.epoch for each in manifest.snapshots) if len(covered) == GROUPS else -1
        kept |= {each.path for each in manifest.snapshots}
        for other in [manifest, *(manifests[each] for each in manifests if oldest < each <= epoch)]:
            kept.add(PATHS.manifest(other.epoch))
            if other.epoch > oldest:
                kept |= {change.path for change in other.changes if change.path is not None}
    for path in job.files:
        file = PATHS.parse(path)
        if file is not None and (
            file.epoch > job.epoch
            or (file.area == "snapshot" and (file.epoch == job.epoch or file.epoch in job.pinned))
            or (file.area == "staging" and file.epoch in retained)
        ):
            kept.add(path)
    return kept


@examples(60)
@given(st.lists(steps, min_size=1, max_size=14), st.integers(1, 4), st.data())
def test_no_retained_epoch_loses_a_file_and_all_else_goes(history: list[Step], num_retained: int, data: st.DataObject) -> None:
    job = MiniJob()
    for step in history:
        manifest = job.write(step)
        for committed in (False, True):  # the collector also runs while an epoch is under way
            if committed:
                job.commit(manifest, step)
                if step.pin:
                    job.pinned.add(job.epoch)
                elif step.unpin:
                    job.pinned.clear()
            if not step.collect:
                continue
            plan = job.plan(num_retained)
            assert set(plan.retained) >= set(sorted(job.truth)[-num_retained:]) | job.pinned
            expected = expected_files(job, plan.retained)
            # Deletion may be cut off anywhere; what is left must be sound, and the next plan be the rest.
            cut = data.draw(st.integers(0, len(plan.paths)))
            for path in plan.paths[:cut]:
                del job.files[path]
            job.check(plan)
            rest = job.plan(num_retained)
            assert rest == GcPlan(
                tuple(path for path in plan.manifests if path in job.files),
                tuple(path for path in plan.files if path in job.files),
                plan.retained,
            )
            for path in rest.paths:
                del job.files[path]
            job.check(plan)
            assert set(job.files) == (expected if job.epoch >= 0 else set(job.files))
            assert job.plan(num_retained).paths == ()


@examples(25)
@given(st.lists(steps, min_size=2, max_size=10), st.data())
def test_deletion_cut_off_leaves_no_listed_manifest_without_its_files(history: list[Step], data: st.DataObject) -> None:
    job = MiniJob()
    for step in history:
        job.commit(job.write(step), step)
    plan = job.plan(1)
    for path in plan.paths[: data.draw(st.integers(0, len(plan.paths)))]:
        del job.files[path]
    for path in plan.manifests:
        if path in job.files:
            epoch = job.files[path].epoch
            assert job.restore(epoch) == job.truth[epoch]


def ref(epoch: int, start: int, stop: int) -> SnapshotRef:
    path = PATHS.snapshot(epoch, start, "a")
    return SnapshotRef(
        subtask=0,
        attempt="a",
        kg_start=start,
        kg_stop=stop,
        epoch=epoch,
        path=path,
        entries=0,
        bytes=0,
        checksum="0" * 64,
    )


def test_changes_stay_until_every_key_group_has_a_snapshot() -> None:
    history = {epoch: make_manifest(epoch, 2, [], []) for epoch in range(10)}
    history[8] = make_manifest(8, 2, [], [ref(7, 0, 3)])
    history[9] = make_manifest(9, 2, [], [ref(7, 0, 3), ref(8, 3, 6)])
    manifests = [PATHS.manifest(epoch) for epoch in range(10)]
    assert plan_gc("j", list(history.values())[:9], manifests, num_retained=1).paths == ()
    assert plan_gc("j", history.values(), manifests, num_retained=1).paths == tuple(reversed(manifests[:8]))
    assert needed_files(history[9], history) == {
        *manifests[8:],
        PATHS.snapshot(7, 0, "a"),
        PATHS.snapshot(8, 3, "a"),
    }


def test_pins_and_protected_paths_stay() -> None:
    manifests = [make_manifest(epoch, 1, [], [ref(epoch, 0, GROUPS)]) for epoch in range(5)]
    files = [PATHS.manifest(epoch) for epoch in range(5)] + [PATHS.snapshot(epoch, 0, "a") for epoch in range(5)]
    plan = plan_gc("j", manifests, files, num_retained=1, pinned={2, 77}, protected={PATHS.snapshot(0, 0, "a")})
    assert plan.retained == (2, 4)
    assert plan.manifests == tuple(PATHS.manifest(epoch) for epoch in (3, 1, 0))
    assert plan.files == tuple(PATHS.snapshot(epoch, 0, "a") for epoch in (1, 3))


def test_ten_are_retained_unless_told() -> None:
    manifests = [make_manifest(epoch, 1, [], []) for epoch in range(20)]
    assert plan_gc("j", manifests, []).retained == tuple(range(10, 20))


def test_nothing_goes_before_the_first_commit() -> None:
    assert plan_gc("j", [], [PATHS.changelog(0, 0, 0, "a"), PATHS.manifest(0)]).paths == ()


def test_other_jobs_are_left_alone() -> None:
    foreign = JobPaths("k").changelog(0, 0, 0, "a")
    assert plan_gc("j", [make_manifest(5, 1, [], [])], [foreign]).paths == ()
    with pytest.raises(StorageError, match="epoch 5 is of job 'j', not of 'k'"):
        plan_gc("k", [make_manifest(5, 1, [], [])], [])


def test_a_manifest_that_was_not_read_stops_everything() -> None:
    with pytest.raises(StorageError, match=r"000000000003\.json is on storage but was not read"):
        plan_gc("j", [make_manifest(5, 1, [], [])], [PATHS.manifest(5), PATHS.manifest(3)])
    # A newer one was committed between reading and listing; nothing of it is garbage.
    assert plan_gc("j", [make_manifest(5, 1, [], [])], [PATHS.manifest(5), PATHS.manifest(6)]).paths == ()


def test_at_least_one_checkpoint_is_retained() -> None:
    with pytest.raises(ConfigError, match="retained checkpoints: 0"):
        plan_gc("j", [], [], num_retained=0)


def test_manifests_of_a_job_without_state_go() -> None:
    history = {epoch: make_manifest(epoch, 2, [], []).replace(states=[]) for epoch in range(10)}
    manifests = [PATHS.manifest(epoch) for epoch in range(10)]
    assert plan_gc("j", history.values(), manifests, num_retained=2).manifests == tuple(manifests[7::-1])


def test_what_was_there_before_a_state_came_goes_but_for_the_last() -> None:
    history = {epoch: make_manifest(epoch, 2, [], []) for epoch in range(10)}
    for epoch in range(6):
        history[epoch] = history[epoch].replace(states=[])
    manifests = [PATHS.manifest(epoch) for epoch in range(10)]
    assert plan_gc("j", history.values(), manifests, num_retained=1).manifests == tuple(manifests[4::-1])
