"""Savepoints that refer to files of earlier ones: what they hold, what is read, and what is deleted when."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import wraps
from itertools import count, permutations
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from job_state import Cluster

import forkpoint as fp
from example_counts import TIMES
from forkpoint.checkpoint import gc
from forkpoint.checkpoint.paths import SAVEPOINT_FILE, JobPaths
from forkpoint.driver.commit import garbage
from forkpoint.driver.run import epochs
from forkpoint.errors import AlreadyExists, ForkpointError, SavepointCorrupt
from forkpoint.graph.options import CheckpointOptions
from forkpoint.operations.jobs.cleanup import find_leftovers, remove_leftovers
from forkpoint.savepoint.catalog.dispose import dispose_savepoint
from forkpoint.savepoint.catalog.listing import list_savepoints
from forkpoint.savepoint.export import increment
from forkpoint.savepoint.export.exporter import export_savepoint
from forkpoint.savepoint.format.opened_savepoint import open_savepoint, verify_files
from forkpoint.savepoint.format.tasks import run_here
from forkpoint.savepoint.inspect.reader import SavepointReader
from forkpoint.storage.base import LocalStorage
from forkpoint.testing import Eof, run_local
from forkpoint.types import type_of

KEYS = 20_000


@pytest.fixture(autouse=True)
def small_state_refers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(increment, "LEAST_BYTES", 0)


def counting(parallelism: int, rows: int = KEYS) -> Any:
    def job(env: fp.StreamExecutionEnvironment, source: Any) -> fp.DataStream[Any]:
        env.set_parallelism(parallelism).set_max_epoch_rows(rows)
        env.options = replace(env.options, checkpoint=CheckpointOptions(num_retained=1))
        numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        return numbers.key_by(lambda n: n, int).map_with_state(lambda n, seen: (n, (seen or 0) + 1), int).uid("counts")

    return job


def counts(path: str) -> dict[int, int]:
    state = SavepointReader.read(path).state("counts", "state")
    assert state.count == sum(1 for _ in state.rows())
    (found,) = SavepointReader.read(path).query("SELECT count(*), sum(value) FROM counts.state").to_pylist()
    assert list(found.values()) == [state.count, sum(entry.value for entry in state.rows())]
    return {entry.key: entry.value for entry in state.rows()}


def test_a_job_keeps_the_changes_for_its_next_savepoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also beyond the epochs of its last checkpoint, and in a new run; but not if there are too many."""
    monkeypatch.setattr(garbage, "EVERY_EPOCHS", 1)
    monkeypatch.setattr(epochs, "SNAPSHOT_CHAIN", 2)
    root, elements = str(tmp_path / "state"), [*range(KEYS), *range(KEYS), Eof(savepoint=True)]
    run_local(counting(1), elements, state_root=root)
    elements += [*range(8), Eof(savepoint=True)]
    path = run_local(counting(1, rows=1), elements, state_root=root).savepoint
    assert path is not None
    assert open_savepoint(path).savepoint.referred
    assert counts(path) == dict.fromkeys(range(KEYS), 2) | dict.fromkeys(range(8), 3)
    monkeypatch.setattr(gc, "MOST_EPOCHS", 3)
    elements += [*range(8), Eof(savepoint=True)]
    path = run_local(counting(1, rows=1), elements, state_root=root).savepoint
    assert path is not None
    assert not open_savepoint(path).savepoint.referred
    assert counts(path) == dict.fromkeys(range(KEYS), 2) | dict.fromkeys(range(8), 4)


def test_a_savepoint_refers_to_the_one_before(tmp_path: Path) -> None:
    root, elements = str(tmp_path / "state"), [*range(KEYS), Eof(savepoint=True)]
    first = run_local(counting(2), elements, state_root=root).savepoint
    elements += [*range(20), Eof(savepoint=True)]
    second = run_local(counting(2), elements, state_root=root).savepoint
    elements += [*range(10, 40), KEYS, Eof(savepoint=True)]
    third = run_local(counting(3), elements, state_root=root).savepoint
    assert first is not None
    assert second is not None
    assert third is not None
    sizes = [open_savepoint(path).savepoint.own_bytes for path in (first, second, third)]
    assert max(sizes[1:]) < sizes[0] / 5
    expected = [dict.fromkeys(range(KEYS), 1)]
    expected.append(expected[0] | dict.fromkeys(range(20), 2))
    expected.append(expected[1] | {n: expected[1][n] + 1 for n in range(10, 40)} | {KEYS: 1})
    assert [counts(path) for path in (first, second, third)] == expected
    for path in (first, second):
        dispose_savepoint(open_savepoint(path), runs=[], savepoints=[], force=True)
    verify_files(open_savepoint(third))
    more = run_local(counting(4), [*elements, 0, KEYS, Eof(savepoint=True)], state_root=str(tmp_path / "new"), restore=third)
    assert more.savepoint is not None
    assert counts(more.savepoint) == expected[2] | {0: 3, KEYS: 2}
    dispose_savepoint(open_savepoint(third), runs=[], savepoints=[])
    assert not list(Path(urlparse(third).path).parent.rglob("*.*"))


PATHS = JobPaths("job")


class Place:
    """A job of which savepoint a has all state, b the changes since then; c is made on top of b."""

    def __init__(self, root: Path, cluster: Cluster) -> None:
        self.root, self.cluster = LocalStorage(str(root)), cluster

    def export(self, name: str, earlier: str | None, epoch: int) -> None:
        try:
            base = None if earlier is None else open_savepoint(self.root_of_savepoints, earlier)
        except ForkpointError:  # it is being deleted
            base = None
        export_savepoint(
            storage=self.root,
            manifest=self.cluster.manifests[epoch],
            target=LocalStorage(f"{self.root.root}/{PATHS.savepoint(name)}"),
            savepoint_id=name,
            run_tasks=run_here,
            earlier=base,
        )

    @property
    def root_of_savepoints(self) -> LocalStorage:
        return LocalStorage(f"{self.root.root}/{PATHS.savepoints}")

    def dispose(self, name: str) -> None:
        try:
            opened = open_savepoint(self.root_of_savepoints, name)
        except ForkpointError:  # somebody else does
            return
        dispose_savepoint(opened, runs=[], savepoints=[], force=True)

    def replace(self, old: str, new: str, epoch: int) -> None:
        self.export(new, old, epoch)
        self.dispose(old)

    def complete(self) -> list[str]:
        """The savepoints that are complete, all of whose files must be there."""
        found = [each.savepoint.id for each in list_savepoints(self.root, "job") if each.savepoint is not None]
        for name in found:
            verify_files(open_savepoint(self.root, PATHS.savepoint(name)))
        return found

    def clean(self) -> None:
        """What `forkpoint gc` does once the leftovers are old."""
        for _ in range(2):  # an unneeded reference goes first, and with it the last need of others
            remove_leftovers(self.root, find_leftovers(self.root, "job", timedelta(days=-1)))

    def check(self) -> None:
        names = self.complete()
        self.clean()
        assert self.complete() == names
        for name in names:
            self.dispose(name)
        self.clean()
        assert self.root.list(PATHS.savepoints) == []


STEPS: dict[str, Callable[[Place], None]] = {
    "make c": lambda place: place.export("c", "b", 3),
    "dispose b": lambda place: place.dispose("b"),
    "dispose a": lambda place: place.dispose("a"),
    "make d": lambda place: place.export("d", "a", 2),
    "replace b by e": lambda place: place.replace("b", "e", 3),
}
EVERY = 3 if TIMES == 1 else 1


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("made")
    types = type_of(int), type_of(int), type_of(str)
    cluster = Cluster(LocalStorage(str(root)), "job", 1, 4, types)
    cluster.manifests = {}  # type: ignore[attr-defined]
    for epoch, keys in ((1, range(40)), (2, range(4)), (3, range(2, 6))):
        cluster.epoch({key: lambda s, e=epoch: s.value.update(e) for key in keys})
        cluster.manifests[epoch] = cluster.manifest  # type: ignore[attr-defined]
    place = Place(root, cluster)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(increment, "LEAST_BYTES", 0)
        place.export("a", None, 1)
        place.export("b", "a", 2)
        yield place


class Died(BaseException):
    pass


class Stepping:
    """Calls ``at`` before step ``number`` on files of savepoints."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int, at: Callable[[], None]) -> None:
        self.left, self.at, self.busy = number, at, False
        for name in ("read", "list", "put", "create", "delete", "exists"):
            patch.setattr(LocalStorage, name, self.wrapped(getattr(LocalStorage, name)))

    def wrapped(self, method: Any) -> Any:
        @wraps(method)
        def step(storage: LocalStorage, *args: Any, **options: Any) -> Any:
            if not self.busy and "savepoints" in f"{storage.root}/{args[0] if args else ''}":
                self.left -= 1
                if self.left <= 0:
                    self.busy = True
                    self.at()
                    self.busy = False
            return method(storage, *args, **options)

        return step


def through_all_steps(made: Place, tmp_path: Path, work: Callable[[Place], None], at: Callable[[Place], None], every: int) -> int:
    """Do the work with ``at`` before each of its steps in turn; ends when there are no more."""
    for number in count(1, every):
        place = Place(tmp_path / str(number), made.cluster)
        shutil.copytree(made.root.root, place.root.root)
        with pytest.MonkeyPatch.context() as patch:
            stepping = Stepping(patch, number, lambda place=place: at(place))
            with suppress(Died):
                work(place)
        if stepping.left > 0:
            return number
        place.check()
        shutil.rmtree(place.root.root)
    raise AssertionError


def die(place: Place) -> None:
    raise Died


@pytest.mark.parametrize("work", STEPS)
def test_a_process_dies_at_any_step(made: Place, tmp_path: Path, work: str) -> None:
    """Whatever is complete afterwards is whole, and nothing stays for good."""
    assert through_all_steps(made, tmp_path, STEPS[work], die, EVERY) > 5


@pytest.mark.parametrize(("one", "other"), list(permutations(STEPS, 2)))
def test_two_processes_at_once(made: Place, tmp_path: Path, one: str, other: str) -> None:
    """The other one does all of its work between any two steps of the first."""

    def once(place: Place) -> None:
        if other not in place.__dict__:
            place.__dict__[other] = True
            STEPS[other](place)

    through_all_steps(made, tmp_path, STEPS[one], once, EVERY)


def test_remains_are_not_a_place_for_another_savepoint(made: Place, tmp_path: Path) -> None:
    place = Place(tmp_path / "copy", made.cluster)
    shutil.copytree(made.root.root, place.root.root)
    place.dispose("a")
    assert [each.directory for each in list_savepoints(place.root, "job")] == [PATHS.savepoint("b")]
    with pytest.raises(AlreadyExists, match="files that other savepoints need"):
        place.export("a", None, 1)


def test_a_copy_without_what_it_refers_to_is_refused(made: Place, tmp_path: Path) -> None:
    shutil.copytree(f"{made.root_of_savepoints.root}/b", tmp_path / "alone" / "b")
    with pytest.raises(SavepointCorrupt, match=r"alone/a/operators/.*missing.*copy the directory a, too.*edit SAVEPOINT --to"):
        open_savepoint(str(tmp_path / "alone" / "b"))
    shutil.copytree(f"{made.root_of_savepoints.root}/a", tmp_path / "alone" / "a")
    verify_files(open_savepoint(str(tmp_path / "alone" / "b" / SAVEPOINT_FILE)))


def test_a_damaged_base_is_not_referred_to(made: Place, tmp_path: Path) -> None:
    place = Place(tmp_path / "copy", made.cluster)
    shutil.copytree(made.root.root, place.root.root)
    for file in Path(place.root_of_savepoints.root, "a").rglob("*.parquet"):
        data = file.read_bytes()
        file.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    place.export("c", "b", 3)
    saved = open_savepoint(place.root, PATHS.savepoint("c"))
    assert not any(file.path.startswith("operators") and file.savepoint for file in saved.savepoint.files if file.changes)
    verify_files(saved)
