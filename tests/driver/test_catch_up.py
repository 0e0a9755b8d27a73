"""A subtask's store gets to the committed epoch from wherever it is: behind, lost, damaged, or advanced by another process."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import JOB, Click, clicks, run

import forkpoint as fp
from forkpoint.checkpoint.manifest import MANIFEST
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.run import epochs as driver_epochs
from forkpoint.errors import StorageError
from forkpoint.runtime.exchange.control import EpochContext
from forkpoint.runtime.tasks.committed_state import CommittedState, Share
from forkpoint.runtime.tasks.subtask_store import SubtaskState
from forkpoint.runtime.tasks.worker import Worker
from forkpoint.state import OPERATOR_KG, Changes, key_group_range, open_store, range_for, write_back, write_changes
from forkpoint.storage.base import LocalStorage

PATHS = JobPaths(JOB)
Entries = dict[bytes, bytes]


class Reads(LocalStorage):
    """Notes what is read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.paths: list[str] = []

    def read(self, path: str) -> bytes:
        self.paths.append(path)
        return super().read(path)


class Forgetting(fp.KeyedProcessFunction):
    """State that comes and goes."""

    total = fp.ValueStateDescriptor("total", int)

    def process_element(self, click: Click, ctx: fp.KeyedProcessFunction.Context) -> Any:
        if click.count == 4:
            self.total.clear()
        else:
            self.total.update((self.total.value() or 0) + click.count)
        yield click


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The history of a job: 30 epochs, snapshots at most 8 epochs apart."""
    place = tmp_path_factory.mktemp("root")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver_epochs, "SNAPSHOT_CHAIN", 8)
        run(place, clicks(150, users=41), retained=100, fn=Forgetting())
    return place


def context(committed: int, previous: dict[str, str] | None = None) -> EpochContext:
    return EpochContext(
        generation=1,
        epoch=committed + 1,
        committed=committed,
        processing_time_ms=0,
        drain=False,
        previous=previous or {},
        splits={},
        watermarks={},
        snapshot_subtasks=[],
    )


def share(subtask: int = 0, parallelism: int = 2) -> Share:
    return Share(subtask, *key_group_range(subtask, parallelism, 128))


def state(root: Path, place: Path, subtask: int = 0, kind: Any = "lmdb") -> tuple[SubtaskState, Reads]:
    place.mkdir(parents=True, exist_ok=True)
    storage = Reads(root)
    return SubtaskState(open_store(kind, place), storage, PATHS, share(subtask)), storage


def entries(subtask: SubtaskState) -> Entries:
    return dict(subtask.store.scan(*range_for(0, OPERATOR_KG + 1)))


@pytest.fixture(scope="module")
def truth(root: Path) -> dict[int, Entries]:
    """Subtask 0's state at each epoch, by changes alone, one epoch after the other from the first."""
    subtask, _ = state(root, root / "truth", kind="dict")
    found, last = {}, max(int(p.stem) for p in (root / PATHS.checkpoints).iterdir())
    for epoch in range(1, last + 1):
        subtask.catch_up(context(epoch))
        found[epoch] = entries(subtask)
    assert len(found[last]) > 10
    return found


@pytest.mark.parametrize("kind", ["lmdb", "dict", "rocksdb"])
def test_a_lost_store_is_made_again_at_any_epoch(root: Path, truth: dict[int, Entries], tmp_path: Path, kind: Any) -> None:
    for epoch in (1, 2, 7, 8, 9, 10, 11, 20, max(truth)):
        subtask, storage = state(root, tmp_path / str(epoch), kind=kind)
        subtask.catch_up(context(epoch))
        assert subtask.store.version == epoch
        assert entries(subtask) == truth[epoch]
        assert len([p for p in storage.paths if "/checkpoints/" in p]) <= 12
        subtask.store.close()


def test_a_large_store_is_made_again_in_parts(
    root: Path, truth: dict[int, Entries], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its changes would not fit into memory at once."""
    parts: list[Share] = []
    of = CommittedState._entries
    monkeypatch.setattr(CommittedState, "_entries", lambda self, *given: parts.append(self.share) or of(self, *given))
    for epoch in (7, 10, 20, max(truth)):
        parts.clear()
        place = tmp_path / str(epoch)
        place.mkdir()
        subtask = SubtaskState(open_store("lmdb", place), Reads(root), PATHS, share(), memory_bytes=1_600)
        subtask.catch_up(context(epoch))
        assert entries(subtask) == truth[epoch]
        assert len(parts) > 5 or epoch == 7
        assert [part.with_operator for part in parts] == [*[False] * (len(parts) - 1), True]


class Slow(Reads):
    """An object store: requests take long, however small."""

    at_once = most = 0

    def read(self, path: str) -> bytes:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        time.sleep(0.02)
        data = super().read(path)
        self.at_once -= 1
        return data


@pytest.mark.parametrize("behind", [False, True])
def test_the_files_of_many_epochs_are_read_at_once(root: Path, truth: dict[int, Entries], tmp_path: Path, behind: bool) -> None:
    storage = Slow(root)
    subtask = SubtaskState(open_store("lmdb", tmp_path / "s"), storage, PATHS, share())
    if behind:
        subtask.catch_up(context(8))
        storage.most = 0
    subtask.catch_up(context(15))  # six epochs after the snapshot
    assert storage.most >= 5
    assert entries(subtask) == truth[15]


def test_a_store_behind_follows_over_the_changes_between(root: Path, truth: dict[int, Entries], tmp_path: Path) -> None:
    subtask, storage = state(root, tmp_path / "s")
    subtask.catch_up(context(3))
    for epoch in (4, 9, 12, 25):
        storage.paths.clear()
        subtask.catch_up(context(epoch))
        assert entries(subtask) == truth[epoch]
        assert not [path for path in storage.paths if "/snapshots/" in path]


def test_a_store_behind_what_was_cleaned_up_is_made_again(root: Path, truth: dict[int, Entries], tmp_path: Path) -> None:
    subtask, storage = state(root, tmp_path / "s")
    subtask.catch_up(context(3))
    gone = root / PATHS.manifest(5)
    text = gone.read_bytes()
    gone.unlink()
    try:
        subtask.catch_up(context(20))
    finally:
        gone.write_bytes(text)
    assert entries(subtask) == truth[20]
    assert [path for path in storage.paths if "/snapshots/" in path]


def test_any_jumps_end_in_the_same_state(root: Path, truth: dict[int, Entries], tmp_path: Path) -> None:
    rng = random.Random(3)
    for number in range(8):
        subtask, _ = state(root, tmp_path / str(number), kind=rng.choice(["lmdb", "dict"]))
        for epoch in sorted(rng.sample(range(1, max(truth) + 1), 4)):
            subtask.catch_up(context(epoch))
            assert entries(subtask) == truth[epoch]


def test_what_this_process_wrote_itself_is_not_read_back(root: Path, truth: dict[int, Entries], tmp_path: Path) -> None:
    subtask, storage = state(root, tmp_path / "s")
    subtask.catch_up(context(4))
    storage.paths.clear()
    attempts = written(root, 5)
    subtask.keep(5, 1, attempts["1-0"], own_changes(truth, 5))
    # Tasks that read sources are numbered too; their attempts are none of this subtask's.
    subtask.catch_up(context(5, {"0-0": "reader", "0-1": "reader", **attempts}))
    assert storage.paths == []
    assert entries(subtask) == truth[5]


def test_what_another_attempt_wrote_is_read_back(root: Path, truth: dict[int, Entries], tmp_path: Path) -> None:
    """A retry was faster: the manifest names that one."""
    subtask, storage = state(root, tmp_path / "s")
    subtask.catch_up(context(4))
    subtask.keep(5, 1, "mine", Changes([b"\0\0\0\0nonsense"], [b"x"]))
    subtask.catch_up(context(5, written(root, 5)))
    assert entries(subtask) == truth[5]
    assert storage.paths
    # And what was kept for an epoch that came to nothing does not get into a later one.
    subtask.keep(6, 1, "mine", Changes([b"\0\0\0\0nonsense"], [b"x"]))
    subtask.catch_up(context(8, written(root, 8)))
    assert entries(subtask) == truth[8]


def written(root: Path, epoch: int) -> dict[str, str]:
    manifest = MANIFEST.load(LocalStorage(root), PATHS.manifest(epoch))
    return {f"{ref.stage}-{ref.subtask}": ref.attempt for ref in manifest.changes}


def own_changes(truth: dict[int, Entries], epoch: int) -> Changes:
    before, after = truth[epoch - 1], truth[epoch]
    keys = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
    return Changes(keys, [after.get(key) for key in keys])


def advance(root: str, place: str, epoch: int) -> None:
    subtask, _ = state(Path(root), Path(place))
    subtask.catch_up(context(epoch))


@pytest.fixture(scope="module")
def processes() -> Iterator[Any]:
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        yield pool


def test_another_process_has_advanced_the_store(root: Path, truth: dict[int, Entries], tmp_path: Path, processes: Any) -> None:
    place = tmp_path / "s"
    subtask, storage = state(root, place)
    subtask.catch_up(context(4))
    subtask.keep(5, 1, "mine", Changes([], []))
    processes.apply(advance, (str(root), str(place), 9))
    storage.paths.clear()
    subtask.catch_up(context(9))
    assert storage.paths == []
    assert entries(subtask) == truth[9]
    subtask.catch_up(context(10))
    assert entries(subtask) == truth[10]


def test_a_leftover_task_does_not_roll_a_store_back(
    root: Path, truth: dict[int, Entries], tmp_path: Path, processes: Any
) -> None:
    """The task of an attempt that was given up wakes up when its store has gone on without it."""
    place = tmp_path / "s"
    processes.apply(advance, (str(root), str(place), 9))
    leftover, _ = state(root, place)
    with pytest.raises(StorageError, match=r"subtask 0: its local store has reached epoch 9; this task starts at epoch 6"):
        leftover.catch_up(context(6))
    assert entries(leftover) == truth[9]


class Host:
    """A host whose processes run subtask 0 in turn, as Spark's workers do."""

    def __init__(self, root: Path, truth: dict[int, Entries], place: Path, processes: int = 2) -> None:
        self._root, self._truth, self.place = root, truth, place
        self.processes = [self.process() for _ in range(processes)]
        self.reads: list[str] = []
        self.ways: list[str] = []

    def process(self) -> tuple[SubtaskState, Reads]:
        storage = Reads(self._root)
        worker = Worker(spec(self._root, self.place, "lmdb", several_processes=True), storage, PATHS)
        return worker.state(0), storage

    def run(self, epoch: int, process: int) -> None:
        """What a task does: catch up, compute, leave its changes."""
        subtask, storage = self.processes[process]
        storage.paths.clear()
        known = {"0-0": "reader", "1-0": f"accepted-{epoch - 1}"} if self.ways else {}  # nothing at a run's start
        way = subtask.catch_up(context(epoch - 1, known))
        keys = sorted({key for state in self._truth.values() for key in state})
        found = subtask.store.get_many(keys)  # a scan would write all that is in memory to the store
        assert found == [self._truth[epoch - 1].get(key) for key in keys]
        self.ways.append(way.by if way is not None else "none")
        self.reads += storage.paths
        changes = own_changes(self._truth, epoch)
        subtask.offer(epoch, 1, f"rejected-{epoch}", write_changes(Changes(changes.keys, [b"wrong"] * len(changes))))
        subtask.offer(epoch, 1, f"accepted-{epoch}", write_changes(changes))
        subtask.keep(epoch, 1, f"accepted-{epoch}", changes)

    @property
    def files(self) -> list[Path]:
        return sorted((self.place / "0.changes").iterdir())


def test_processes_of_a_host_that_take_turns_read_nothing_from_the_state_root(
    root: Path, truth: dict[int, Entries], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_back, "MAX_EPOCHS", 5)
    rng = random.Random(1)
    host = Host(root, truth, tmp_path, processes=3)
    host.run(4, 0)
    assert host.ways == ["rebuild"]
    host.reads.clear()
    for epoch in range(5, max(truth) + 1):
        host.run(epoch, rng.randrange(3))
        assert len(host.files) <= 3 * 6, "those of the epochs that the store on disk has are removed"
    assert host.reads == []
    assert set(host.ways[1:]) == {"memory", "host"}


def test_a_new_process_reads_what_those_that_were_killed_have_left(root: Path, truth: dict[int, Entries], tmp_path: Path) -> None:
    host = Host(root, truth, tmp_path)
    for epoch in range(4, 15):
        host.processes[0] = host.process()
        host.run(epoch, 0)
    assert not any(f"{epoch:012}" in path for epoch in range(4, 15) for path in host.reads)
    assert host.ways == ["rebuild"] + ["host"] * 10


@pytest.mark.parametrize("damage", ["missing", "cut short", "overwritten", "not accepted"])
def test_what_is_damaged_on_the_host_is_read_from_the_state_root(
    root: Path, truth: dict[int, Entries], tmp_path: Path, damage: str
) -> None:
    host = Host(root, truth, tmp_path)
    for epoch in range(4, 12):
        host.run(epoch, 0)
    host.reads.clear()
    if damage == "not accepted":
        (tmp_path / "0.changes" / "7.accepted").unlink()
    else:
        place = tmp_path / "0.changes" / "7-1-accepted-7.arrow"
        data = place.read_bytes()
        place.unlink()
        if damage != "missing":
            place.write_bytes(data[:-9] if damage == "cut short" else bytes(len(data)))
    host.run(12, 1)
    assert host.ways[-1] == "changes"
    assert not [path for path in host.reads if f"{6:012}" in path], "from the damaged epoch on"
    host.reads.clear()
    host.run(13, 0)  # it may have older changes in memory than the store has now
    host.run(14, 1)
    assert host.ways[-2:] == ["memory", "host"] or host.ways[-2:] == ["host", "host"]
    assert host.reads == []


def test_a_subtask_that_returns_to_a_host_after_a_while_elsewhere(root: Path, truth: dict[int, Entries], tmp_path: Path) -> None:
    here, elsewhere = Host(root, truth, tmp_path / "a"), Host(root, truth, tmp_path / "b")
    for epoch in range(4, 10):
        here.run(epoch, epoch % 2)
    for epoch in range(10, 20):
        elsewhere.run(epoch, epoch % 2)
    for epoch in range(20, 26):
        here.run(epoch, epoch % 2)
    assert here.ways[6] == "changes"
    assert set(here.ways[7:]) == {"host"}


@pytest.mark.parametrize("kind", ["lmdb", "rocksdb"])
def test_a_damaged_store_is_made_again(root: Path, truth: dict[int, Entries], tmp_path: Path, kind: Any) -> None:
    """As a worker opens it: cut short, or overwritten."""
    for number, damage in enumerate((b"", b"no store", None)):
        place = tmp_path / str(number)
        subtask, _ = state(root, place / "0", kind=kind)
        subtask.catch_up(context(9))
        subtask.store.close()
        for file in (p for p in (place / "0").rglob("*") if p.is_file() and p.name not in ("lock.mdb", "LOCK")):
            data = file.read_bytes()
            file.write_bytes(data[: len(data) // 2] if damage is None else damage)
        worker = Worker(spec(root, place, kind), LocalStorage(root), PATHS)
        again = worker.state(0)
        again.catch_up(context(12))
        assert entries(again) == truth[12]
        worker.close()


def spec(root: Path, place: Path, kind: str, *, several_processes: bool = False) -> Any:
    from types import SimpleNamespace

    return SimpleNamespace(
        local_dir=str(place),
        store=kind,
        parallelism=2,
        max_parallelism=128,
        storage_url=str(root),
        several_processes=several_processes,
        memory_bytes=None,
    )


def test_changes_that_are_gone_or_damaged_are_named(root: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    snapshots = sorted((copy / PATHS.snapshot_directory).rglob("*.arrow"))
    newest = max(int(path.parent.name) for path in snapshots)
    damaged = next(path for path in snapshots if int(path.parent.name) == newest and path.name.startswith("0-"))
    damaged.write_bytes(damaged.read_bytes()[:-40])
    subtask, _ = state(copy, tmp_path / "s")
    with pytest.raises(Exception, match=damaged.name) as caught:
        subtask.catch_up(context(newest + 2))
    assert type(caught.value).__name__ == "SavepointCorrupt"
