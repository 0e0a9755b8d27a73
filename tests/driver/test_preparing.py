"""Stores that are built before the layout they belong to runs."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import JOB, clicks, history, run

from example_counts import examples
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.run import epochs as driver_epochs
from forkpoint.errors import NotFound
from forkpoint.graph.job import JobGraph
from forkpoint.local.executor import LocalExecutor
from forkpoint.runtime.exchange.control import JobSpec
from forkpoint.runtime.tasks.subtask_store import Share, SubtaskState
from forkpoint.runtime.tasks.worker import open_cache
from forkpoint.state import OPERATOR_KG, key_group_range, open_store, range_for
from forkpoint.storage.base import open_storage

EPOCHS = 30
Stored = list[tuple[int, dict[bytes, bytes]]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The history of a job: 30 epochs, snapshots at most 8 epochs apart."""
    place = tmp_path_factory.mktemp("root")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver_epochs, "SNAPSHOT_CHAIN", 8)
        run(place, clicks(5 * EPOCHS, users=41), retained=100)
    return place


def layout(root: Path, local_dir: Path, parallelism: int, store: Any = "lmdb") -> JobSpec:
    return JobSpec(
        run=local_dir.name,
        job=JOB,
        graph=JobGraph((), 1, 128),
        storage_url=open_storage(str(root)).url,
        parallelism=parallelism,
        max_parallelism=128,
        store=store,
        local_dir=str(local_dir),
        parameters={},
        known_states={},
    )


def stored(spec: JobSpec) -> Stored:
    """Each subtask's version and entries, as another process finds them on disk."""
    found = []
    for subtask in range(spec.parallelism):
        store = open_cache(spec.store, Path(spec.local_dir) / str(subtask))
        found.append((store.version, dict(store.scan(*range_for(0, OPERATOR_KG + 1)))))
        store.close()
    return found


def rebuilt(root: Path, parallelism: int, epoch: int) -> Stored:
    """The same from nothing."""
    found = []
    for subtask in range(parallelism):
        share = Share(subtask, *key_group_range(subtask, parallelism, 128))
        place = f"in memory {uuid.uuid4().hex}"
        state = SubtaskState(open_store("dict", place), open_storage(str(root)), JobPaths(JOB), share)
        state.prepare(epoch)
        found.append((state.store.version, dict(state.store.scan(*range_for(0, OPERATOR_KG + 1)))))
    return found


@given(st.integers(1, 6), st.sets(st.integers(1, EPOCHS), min_size=1, max_size=4).map(sorted))
@examples(5)
def test_a_layout_follows_the_job(root: Path, parallelism: int, epochs: list[int]) -> None:
    executor = LocalExecutor()
    spec = layout(root, root / f"stores-{uuid.uuid4().hex}", parallelism)
    for number, epoch in enumerate(epochs):
        done = executor.prepare(spec, epoch)
        assert [each.by for each in done] == ["changes" if number else "rebuild"] * parallelism
        assert stored(spec) == rebuilt(root, parallelism, epoch)
    assert not executor.prepare(spec, epochs[0])
    keys = [key for _, entries in stored(spec) for key in entries]
    assert len(keys) == len(rebuilt(root, 1, epochs[-1])[0][1])
    executor.discard(spec)
    assert not Path(spec.local_dir).exists()


@pytest.mark.parametrize("store", ["lmdb", "rocksdb", "dict"])
def test_any_kind_of_store_can_be_prepared_again_after_it_was_lost(root: Path, tmp_path: Path, store: Any) -> None:
    executor, spec = LocalExecutor(), layout(root, tmp_path / "stores", 3, store)
    executor.prepare(spec, 5)
    executor.discard(spec)
    assert [each.by for each in executor.prepare(spec, 9)] == ["rebuild"] * 3
    assert stored(spec) == rebuilt(root, 3, 9)
    executor.discard(spec)


def test_a_damaged_store_is_replaced(root: Path, tmp_path: Path) -> None:
    executor, spec = LocalExecutor(), layout(root, tmp_path / "stores", 2)
    executor.prepare(spec, 5)
    (tmp_path / "stores" / "1" / "data.mdb").write_bytes(b"damaged" * 1000)
    assert [each.by for each in executor.prepare(spec, 9)] == ["changes", "rebuild"]
    assert stored(spec) == rebuilt(root, 2, 9)


def test_an_epoch_that_was_collected_is_not_found(root: Path, tmp_path: Path) -> None:
    """The caller, a standby for example, takes a newer one."""
    copy = tmp_path / "root"
    shutil.copytree(root, copy)
    history(copy).collect_garbage(history(copy).load(EPOCHS).run, 1, ())
    executor, spec = LocalExecutor(), layout(copy, tmp_path / "stores", 2)
    with pytest.raises(NotFound):
        executor.prepare(spec, 3)
    executor.prepare(spec, EPOCHS)
    assert stored(spec) == rebuilt(root, 2, EPOCHS)


def test_a_manifest_that_the_leader_removes_meanwhile_is_not_taken_for_the_first(tmp_path: Path) -> None:
    """What it puts in place of a run's first manifest has no states, like that of a job that has none yet."""
    run(tmp_path, clicks(40), retained=100)
    past = history(tmp_path)
    first, *_, newest = past.epochs()
    executor, spec = LocalExecutor(), layout(tmp_path, tmp_path / "stores", 2)
    executor.prepare(spec, newest)
    assert stored(spec) == rebuilt(tmp_path, 2, newest)
    past.remove(past.load(first))
    spec = layout(tmp_path, tmp_path / "others", 2)
    with pytest.raises(NotFound, match="has gone on"):
        executor.prepare(spec, newest)
