"""A job's epochs as names on storage: taken once, and those that fence for good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.checkpoint.history import LIST_ALL_EVERY, History
from forkpoint.checkpoint.manifest import ChangesRef, Manifest, Parent
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.errors import StaleGeneration, StorageError
from forkpoint.storage.base import Storage, open_storage

PATHS = JobPaths("job")


def fresh() -> History:
    storage: Storage = open_storage("memory://history")
    for path in storage.list():
        storage.delete(path)
    return History(storage, PATHS)


def manifest(epoch: int, run: str, generation: int, kind: str = "epoch") -> Manifest:
    return Manifest(
        job="job",
        run=run,
        generation=generation,
        epoch=epoch,
        kind=kind,
        created_ms=0,
        processing_time_ms=0,
        parallelism=1,
        max_parallelism=128,
        parent=Parent(),
    )  # type: ignore[arg-type]


@dataclass
class Driver:
    """What a driver knows: its run, and the last manifest that it committed."""

    history: History
    run: str
    last: Manifest

    @classmethod
    def start(cls, history: History, run: str, seen: Manifest | None, ahead: int = 0) -> Driver:
        """``ahead``: how far the savepoint that it starts from is ahead of the job."""
        epoch = (seen.epoch if seen else 0) + 1 + ahead
        first = manifest(epoch, run, (seen.generation if seen else 0) + 1, "start")
        history.commit(first, after=seen.epoch if seen else 0)
        return cls(history, run, first)

    def commit(self) -> None:
        following = manifest(self.last.epoch + 1, self.run, self.last.generation)
        self.history.commit(following)
        self.last = following


@given(data=st.data())
def test_whoever_commits_is_the_newest(data: st.DataObject) -> None:
    """Drivers that start from what they saw at some time, commit, and collect garbage, in any order."""
    history = fresh()
    drivers: list[Driver] = []
    seen: list[Manifest | None] = [None]
    newest: str | None = None
    for n in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["look", "start", "commit", "commit", "collect"])):
            case "look":
                seen.append(history.newest())
            case "start":
                try:
                    driver = Driver.start(history, f"r{n}", data.draw(st.sampled_from(seen)), data.draw(st.integers(0, 9)))
                except StaleGeneration:
                    continue
                drivers.append(driver)
                newest = driver.run
            case "commit" if drivers:
                driver = data.draw(st.sampled_from(drivers))
                try:
                    driver.commit()
                except StaleGeneration:
                    drivers.remove(driver)
                else:
                    assert driver.run == newest
            case "collect" if drivers:
                driver = data.draw(st.sampled_from(drivers))
                try:
                    history.collect_garbage(driver.run, 1, ())
                except StaleGeneration:
                    drivers.remove(driver)


def test_the_first_epoch_of_a_run_keeps_its_name() -> None:
    history = fresh()
    old = Driver.start(history, "old", None)
    new = Driver.start(history, "new", history.newest())
    for _ in range(3):
        new.commit()
    for each in (old.last, *(history.load(epoch) for epoch in (2, 3, 4))):
        history.remove(each)
    assert history.epochs() == [5]
    with pytest.raises(StaleGeneration, match=r"run 'new' \(generation 2\) is newer and has committed epoch 2"):
        old.commit()
    history.remove(history.load(2))  # again, as a collection that was cut short would
    assert history.epochs() == [5]
    assert history.newest() == new.last


def test_a_fence_that_was_removed_by_hand() -> None:
    history = fresh()
    old = Driver.start(history, "old", None)
    new = Driver.start(history, "new", history.newest())
    new.commit()
    history.storage.delete(PATHS.manifest(2))
    with pytest.raises(StaleGeneration, match=r"run 'new' \(generation 2\) is newer and has committed epoch 3"):
        old.commit()
    new.commit()


def test_a_run_from_a_savepoint_far_ahead_replaces_one_that_is_alive() -> None:
    history = fresh()
    old = Driver.start(history, "old", None)
    new = Driver.start(history, "new", history.newest(), ahead=50)
    with pytest.raises(StaleGeneration, match="run 'new'"):
        old.commit()
    new.commit()


def test_of_two_runs_that_start_from_savepoints_far_apart_one_lives() -> None:
    history = fresh()
    first = Driver.start(history, "first", None, ahead=50)
    with pytest.raises(StaleGeneration, match="run 'first'"):
        Driver.start(history, "second", None, ahead=90)
    with pytest.raises(StaleGeneration, match="run 'second'"):
        first.commit()
    Driver.start(history, "third", history.newest()).commit()


def test_garbage_is_for_the_newest_run() -> None:
    history = fresh()
    Driver.start(history, "old", None).commit()
    Driver.start(history, "new", history.newest()).commit()
    with pytest.raises(StaleGeneration, match="run 'new'"):
        history.collect_garbage("old", 1, ())
    assert history.epochs() == [1, 2, 3, 4]
    history.collect_garbage("new", 1, ())


def test_cleaning_up_reads_no_manifest_of_its_own_run_and_others_once() -> None:
    history = fresh()
    driver = Driver.start(history, "first", None)
    for _ in range(4):
        driver.commit()
    reads: list[int] = []

    class Counting(History):
        def load(self, epoch: int) -> Manifest:
            reads.append(epoch)
            return super().load(epoch)

    second = Driver.start(Counting(history.storage, PATHS), "second", driver.last)
    for _ in range(3):
        second.commit()
        second.history.collect_garbage("second", 6, ())
    assert sorted(reads) == [1, 2, 3, 4, 5]
    assert second.history.epochs() == [4, 5, 6, 7, 8, 9]


class Listing:
    """A storage that counts what its listings return."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.seen = 0

    def list(self, prefix: str = "", after: str = "") -> list[str]:
        found = self._storage.list(prefix, after)
        self.seen += len(found)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


def with_changes(history: History, before: Manifest, subtasks: int = 5) -> Manifest:
    """Commit an epoch whose subtasks have each written a file, and one more in an attempt that was not accepted."""
    epoch = before.epoch + 1
    changes = []
    for subtask in range(subtasks):
        for attempt in ("accepted", "lost"):
            history.storage.put(PATHS.changelog(epoch, 1, subtask, attempt), b"")
        changes.append(
            ChangesRef(
                kg_start=0,
                kg_stop=1,
                stage=1,
                subtask=subtask,
                attempt="accepted",
                entries=0,
                bytes=0,
                checksum="0" * 64,
                path=PATHS.changelog(epoch, 1, subtask, "accepted"),
            )
        )
    following = manifest(epoch, before.run, before.generation).replace(changes=changes)
    history.commit(following)
    return following


def data_files(history: History) -> list[str]:
    return history.storage.list(PATHS.changelog_directory)


def test_a_collection_lists_what_was_written_since_the_last_one() -> None:
    listing = Listing(fresh().storage)
    history = History(cast(Storage, listing), PATHS)
    last = Driver.start(history, "run", None).last
    counts = []
    for n in range(1, 121):
        last = with_changes(history, last)
        if n % 20 == 0:
            listing.seen = 0
            history.collect_garbage("run", 200, ())
            counts.append(listing.seen - n)  # beside the manifests
    assert max(counts) <= 21 * 10 + 10
    assert len(data_files(history)) == 120 * 5  # all retained, and every lost attempt's file is gone
    history.collect_garbage("run", 1, ())
    assert len(data_files(history)) == 5  # files that were listed long ago are collected once nothing needs them
    assert history.known.paths == set(data_files(history))


def test_files_of_tasks_that_outlived_their_epoch_are_found_in_the_end() -> None:
    history = fresh()
    last = Driver.start(history, "run", None).last
    for _ in range(3):
        last = with_changes(history, last)
    history.collect_garbage("run", 200, ())
    late = PATHS.changelog(2, 1, 0, "late")
    history.storage.put(late, b"")
    for _ in range(LIST_ALL_EVERY - 1):
        last = with_changes(history, last, 1)
        history.collect_garbage("run", 200, ())
    assert late in data_files(history)
    last = with_changes(history, last, 1)
    history.collect_garbage("run", 200, ())
    assert late not in data_files(history)


def test_what_could_not_be_deleted_is_deleted_by_the_next_collection() -> None:
    class Failing(Listing):
        fails = True

        def delete_all(self, paths: list[str]) -> None:
            if self.fails:
                raise StorageError("no")
            self._storage.delete_all(paths)

    storage = Failing(fresh().storage)
    history = History(cast(Storage, storage), PATHS)
    last = Driver.start(history, "run", None).last
    last = with_changes(history, last)
    with pytest.raises(StorageError):
        history.collect_garbage("run", 200, ())
    storage.fails = False
    with_changes(history, last)
    history.collect_garbage("run", 200, ())
    assert [path for path in data_files(history) if "lost" in path] == []
