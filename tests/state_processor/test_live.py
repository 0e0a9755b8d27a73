"""A job's state is read while it runs: at its last committed epoch, whole, and whatever the job does meanwhile."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saved_job import EVENTS, Event, build, saved

import forkpoint as fp
from example_counts import examples
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.run import epochs
from forkpoint.errors import ConfigError, EpochGone, JobNotFound, StateNotFound, StorageUnavailable, TypeNotSupported
from forkpoint.savepoint.export import committed_epochs
from forkpoint.savepoint.export.chain_reader import files_of
from forkpoint.savepoint.inspect import follower as follower_module
from forkpoint.savepoint.inspect import live
from forkpoint.state_processor import LiveState, SavepointReader, StateFollower
from forkpoint.storage.base import LocalStorage
from forkpoint.testing import ABORT, Eof, Rescale, run_local


@contextmanager
def opened(root: Path, how: str, job: str = "test") -> Iterator[LiveState]:
    if how == "once":
        yield LiveState.find(root, job)
    else:
        with StateFollower(root, job) as follower:
            yield follower.newest()


def assert_same(found: LiveState, savepoint: SavepointReader) -> None:
    """Tables, keys and SQL are those of a savepoint of that epoch."""
    assert found.epoch == savepoint.epoch
    assert found.operators == savepoint.operators
    assert [(s.uid, s.name, s.kind) for s in found.states] == [(s.uid, s.name, s.kind) for s in savepoint.states]
    for mine, expected in zip(found.states, savepoint.states, strict=True):
        assert mine.to_arrow().equals(expected.to_arrow()), (mine.uid, mine.name)
        if expected.key_type is not None:
            for key in {row.key for row in expected.rows()} | {"nobody"}:
                assert mine.get(key) == expected.get(key), (mine.uid, mine.name, key)
    sql = """SELECT key, count, "by parity".map_key, "by parity".value
             FROM everything.total JOIN everything."by parity" USING (key) ORDER BY ALL"""
    assert found.query(sql).equals(savepoint.query(sql))
    assert found.query(sql).num_rows > 7


@pytest.mark.parametrize("how", ["once", "followed"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_state_is_that_of_a_savepoint_of_the_same_epoch(tmp_path: Path, parallelism: int, how: str) -> None:
    savepoint = saved(tmp_path, parallelism=parallelism, epochs=5)
    with opened(tmp_path, how) as found:
        assert_same(found, savepoint)
        assert found.timers("everything", "processing").to_arrow().num_rows == 40
        assert [row.value for row in found.state("buffer", "seen").rows()] == [e.user for e in EVENTS]


@pytest.mark.parametrize("how", ["once", "followed"])
def test_state_is_whole_after_a_rescaling_a_restart_and_a_restore(tmp_path: Path, how: str) -> None:
    events = [
        *EVENTS[:10],
        Rescale(3),
        *EVENTS[10:20],
        ABORT,
        *EVENTS[20:30],
        Rescale(2),
        *EVENTS[30:],
        Eof(savepoint=True),
    ]
    run = run_local(build, events, state_root=tmp_path, epochs=3, parallelism=1)
    assert run.savepoint is not None
    with opened(tmp_path, how) as found:
        assert_same(found, SavepointReader.read(run.savepoint))
    more = [*events, *[Event("u1", 7, 9000 + i) for i in range(9)], Eof(savepoint=True)]
    again = run_local(build, more, state_root=tmp_path, epochs=4, restore=run.savepoint, parallelism=4)
    assert again.savepoint is not None
    with opened(tmp_path, how) as found:
        assert_same(found, SavepointReader.read(again.savepoint))


@examples(3)
@given(st.data())
def test_a_follower_is_right_after_any_runs(data: st.DataObject) -> None:
    """Of any lengths, with epochs, snapshots, rescalings and deaths at any places, each from where the last one ended."""
    script: list[Any] = []
    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(epochs, "SNAPSHOT_CHAIN", data.draw(st.sampled_from([2, 5, 100])))
        with StateFollower(root, "test") as follower:
            for number in range(data.draw(st.integers(1, 3))):
                for _ in range(data.draw(st.integers(1, 3))):
                    size = data.draw(st.integers(0, 12))
                    past = sum(isinstance(each, Event) for each in script)
                    script += [Event(f"u{i * 5 % 9}", i, i * 300) for i in range(past, past + size)]
                    script += data.draw(st.sampled_from([[], [ABORT], [Rescale(3)], [Rescale(1)]]))
                script.append(Eof(savepoint=True))
                run = run_local(
                    build,
                    script,
                    state_root=root,
                    epochs=data.draw(st.sampled_from([1, 4, 100])),
                    parallelism=2,
                    restore="latest" if number else None,
                )
                assert run.savepoint is not None
                expected = SavepointReader.read(run.savepoint)
                for found in (follower.newest(), LiveState.find(root, "test")):
                    assert found.epoch == expected.epoch
                    for mine, theirs in zip(found.states, expected.states, strict=True):
                        assert mine.to_arrow().equals(theirs.to_arrow()), (mine.uid, mine.name)
                        for key in ("u0", "u5") if theirs.key_type is not None else ():
                            assert mine.get(key) == theirs.get(key)


# -- while it runs

KEYS = 11


class Seen(fp.KeyedProcessFunction):
    count = fp.ValueStateDescriptor("count", int)
    last = fp.MapStateDescriptor("last", int, int)

    def process_element(self, n: int, ctx: Any) -> Iterator[int]:
        self.count.update((self.count.value() or 0) + 1)
        self.last.put(n % 3, n)
        yield n


class Twice(fp.KeyedProcessFunction):
    """Changes together with ``Seen``, in another stage, by another key."""

    sum = fp.ValueStateDescriptor("sum", int)

    def process_element(self, n: int, ctx: Any) -> Iterator[int]:
        self.sum.update((self.sum.value() or 0) + n)


def seen_job(env: Any, *sources: Any) -> None:
    source = sources[0] if sources else fp.CounterSource(None, per_epoch=50)
    numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    first = numbers.key_by(lambda n: n % KEYS, int).process(Seen(), int).uid("seen")
    first.key_by(lambda n: n % 7, int).process(Twice(), int).uid("twice").sink_to(fp.DiscardSink()).uid("out")


def assert_consistent(found: LiveState) -> int:
    """Everything is what the model has after as many numbers as the epoch's position says."""
    count = sum(row.value for row in found.state("seen", "count").rows()) if found.states else 0
    numbers = range(count)
    per_key = {key: len(range(key, count, KEYS)) for key in range(KEYS)}
    assert {row.key: row.value for row in found.state("seen", "count").rows()} == {k: n for k, n in per_key.items() if n}
    sums = {key: sum(numbers[key::7]) for key in range(7) if numbers[key::7]}
    assert {row.key: row.value for row in found.state("twice", "sum").rows()} == sums
    key = found.epoch % KEYS
    assert found.get("seen", "count", key) == (per_key[key] or None)
    last = {n % 3: n for n in numbers[key::KEYS]}
    assert found.get("seen", "last", key) == (last or None)
    return count


@contextmanager
def running(root: Path, name: str = "test", parallelism: int = 2, **restore: Any) -> Iterator[fp.JobClient]:
    """The job on a thread of this process. It commits as fast as it can, and cleans up every twenty epochs."""
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.configure({"execution.engine": "local"}).set_state_root(str(root))
    env.set_parallelism(parallelism).enable_checkpointing(1)
    seen_job(env)
    client = env.execute_async(name, **restore)
    try:
        yield client
    finally:
        client.cancel().result()


def epochs_beyond(root: Path, epoch: int, job: str = "test") -> Iterator[None]:
    """Once for each look, until the job has committed this epoch."""
    while committed(root, job) < epoch:
        yield


def committed(root: Path, job: str = "test") -> int:
    names = LocalStorage(str(root)).list(JobPaths(job).checkpoints)
    return max((file.epoch for name in names if (file := JobPaths(job).parse(name))), default=0)


def once_committed(root: Path, epoch: int, job: str = "test") -> None:
    for _ in epochs_beyond(root, epoch, job):
        threading.Event().wait(0.01)


def test_a_running_job_is_read_consistently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By both ways at once, while it commits, takes snapshots, cleans up and is rescaled."""
    monkeypatch.setattr(epochs, "SNAPSHOT_CHAIN", 20)
    with running(tmp_path) as client, StateFollower(tmp_path, "test") as follower:
        once_committed(tmp_path, 2)
        seen: set[int] = set()
        rescaled = False
        for look in itertools.count():
            found = follower.newest()
            assert found.epoch >= max(seen, default=0)
            assert assert_consistent(found) >= 0
            seen.add(found.epoch)
            if look == 5:
                kept = found
            if look % 7 == 0:
                with suppress(EpochGone):  # the epochs are that short
                    assert_consistent(LiveState.find(tmp_path, "test"))
            if found.epoch >= 20 and not rescaled:
                rescaled = client.rescale(3) is not None
            if found.epoch > 60 and len(seen) > 10:
                break
        assert len(LocalStorage(str(tmp_path)).list(JobPaths("test").checkpoints)) < 50  # it has cleaned up
        assert_consistent(kept)


def test_a_follower_reads_each_file_once_and_keeps_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "SNAPSHOT_CHAIN", 20)
    with running(tmp_path), StateFollower(tmp_path, "test") as follower:
        once_committed(tmp_path, 45)
        newest = follower.newest()
        held = dict(follower._files)
        assert held.keys() == {ref.checksum for ref, _ in files_of(newest.reader.files)}
        before = follower._cache._bytes
        assert_consistent(newest)
        assert before <= follower._cache._bytes <= follower_module.CACHE_BYTES
        once_committed(tmp_path, newest.epoch + 1)
        later = follower.newest()
        assert later.epoch > newest.epoch
        assert all(follower._files[c] is file for c, file in held.items() if c in follower._files)


def test_threads_share_one_look(tmp_path: Path) -> None:
    with running(tmp_path), StateFollower(tmp_path, "test") as follower, ThreadPoolExecutor(8) as pool:
        once_committed(tmp_path, 2)
        for _ in epochs_beyond(tmp_path, 8):
            before = committed(tmp_path)
            found = list(pool.map(lambda _: follower.newest(), range(16)))
            assert all(each.epoch >= before for each in found)
            assert len({id(each) for each in found}) == len({each.epoch for each in found})
            list(pool.map(assert_consistent, found))


def test_an_older_state_will_do_where_that_is_said(tmp_path: Path) -> None:
    run_local(seen_job, [*range(100)], state_root=tmp_path, epochs=20)
    with StateFollower(tmp_path, "test") as follower:
        assert assert_consistent(follower.newest()) == 100
        shutil.rmtree(tmp_path / "jobs")
        assert assert_consistent(follower.newest(max_age_seconds=1e6)) == 100
        with pytest.raises(JobNotFound):
            follower.newest()


def test_a_small_cache_only_costs_time(tmp_path: Path) -> None:
    run_local(seen_job, [*range(500)], state_root=tmp_path, epochs=20, parallelism=2)
    with StateFollower(tmp_path, "test", cache_bytes=0) as follower:
        assert assert_consistent(follower.newest()) == 500
        assert follower._cache._bytes == 0


def many_keys(env: Any, source: Any) -> None:
    """State that is too much to go into the manifests: each number has its own."""
    numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    kept = numbers.key_by(lambda n: n * 7919 % 2**40, int).map_with_state(lambda n, _: (n, n), int, int).uid("kept")
    kept.sink_to(fp.DiscardSink()).uid("out")


def assert_all_kept(found: LiveState, count: int) -> None:
    assert sorted(row.value for row in found.state("kept", "state").rows()) == list(range(count))
    assert [found.get("kept", "state", n * 7919) for n in (1, count - 1, count)] == [1, count - 1, None]


def test_what_a_follower_returned_outlives_the_job_and_the_follower(tmp_path: Path) -> None:
    root, directory = tmp_path / "root", tmp_path / "copies"
    directory.mkdir()
    run_local(many_keys, [*range(30_000)], state_root=root, epochs=10_000, parallelism=2)
    with StateFollower(root, "test", directory=directory) as follower:
        found = follower.newest()
        assert list(directory.iterdir()) == []  # nothing has a name
    assert any(change.file.path is not None for change in found.reader.files.changes)
    shutil.rmtree(root)
    assert_all_kept(found, 30_000)
    follower.close()
    with pytest.raises(fp.ForkpointError, match="was closed"):
        follower.newest()
    with StateFollower(root, "test", directory=directory / "missing") as follower, pytest.raises(JobNotFound):
        follower.newest()


def test_a_copy_that_has_no_room_says_where(tmp_path: Path) -> None:
    run_local(many_keys, [*range(30_000)], state_root=tmp_path, epochs=10_000)
    missing = tmp_path / "missing"
    with StateFollower(tmp_path, "test", directory=missing) as follower, pytest.raises(StorageUnavailable) as failed:
        follower.newest()
    assert str(missing) in str(failed.value)


def test_files_that_vanish_are_said_to_have(tmp_path: Path) -> None:
    """Those that a state has read before it has."""
    run_local(many_keys, [*range(30_000)], state_root=tmp_path, epochs=10_000)
    found, held = LiveState.find(tmp_path, "test"), LiveState.find(tmp_path, "test")
    assert_all_kept(held, 30_000)
    LocalStorage(str(tmp_path)).delete_prefix(JobPaths("test").changelog_directory)
    LocalStorage(str(tmp_path)).delete_prefix(JobPaths("test").snapshot_directory)
    assert_all_kept(held, 30_000)
    with pytest.raises(EpochGone, match=f"removed the files of epoch {found.epoch}"):
        found.get("kept", "state", 7919)
    with pytest.raises(EpochGone):
        list(found.state("kept", "state").rows())
    with StateFollower(tmp_path, "test") as follower, pytest.raises(EpochGone):
        follower.newest()


def test_reading_begins_again_where_the_job_has_removed_the_files() -> None:
    tries: list[int] = []

    def read(times: int) -> int:
        tries.append(len(tries))
        if len(tries) < times:
            raise committed_epochs.epoch_gone("test", 7)
        return 5

    assert live.while_gone(lambda: read(3)) == 5
    assert tries == [0, 1, 2]
    with pytest.raises(EpochGone):
        live.while_gone(lambda: read(100))
    assert len(tries) == 3 + live.TRIES


def test_the_fence_of_a_run_s_first_epoch_is_not_taken_for_a_job_without_state(tmp_path: Path) -> None:
    """A manifest that its run replaced while it cleaned up looks like that of a job that had no state yet."""
    run_local(seen_job, [*range(100), ABORT, *range(100, 200)], state_root=tmp_path, epochs=20)
    storage, paths = LocalStorage(str(tmp_path)), JobPaths("test")
    history = History(storage, paths)
    starts = [epoch for epoch in history.epochs() if history.load(epoch).kind == "start"]
    assert assert_consistent(LiveState.find(tmp_path, "test")) == 200
    assert len(starts) == 2
    history.remove(history.load(starts[1]))
    manifests = committed_epochs.CommittedEpochs(storage, "test")
    newest = manifests.load(manifests.newest_epoch())
    with pytest.raises(EpochGone):
        manifests.files(newest)


def test_another_job_of_the_same_name_is_another_job(tmp_path: Path) -> None:
    run_local(seen_job, [*range(300)], state_root=tmp_path, epochs=20)
    with StateFollower(tmp_path, "test") as follower:
        assert assert_consistent(follower.newest()) == 300
        shutil.rmtree(tmp_path / "jobs")
        run_local(seen_job, [*range(500)], state_root=tmp_path, epochs=20)
        assert assert_consistent(follower.newest()) == 500


def test_a_restarted_job_is_followed(tmp_path: Path) -> None:
    with StateFollower(tmp_path, "test") as follower:
        with running(tmp_path):
            once_committed(tmp_path, 10)
            first = follower.newest()
            assert_consistent(first)
        with running(tmp_path, parallelism=3):
            once_committed(tmp_path, committed(tmp_path) + 5)
            again = follower.newest()
            assert assert_consistent(again) > 0
            assert (again.run != first.run, again.epoch > first.epoch) == (True, True)


# -- kinds of state, names, keys


def test_what_is_not_there_is_said_with_what_is(tmp_path: Path) -> None:
    saved(tmp_path, parallelism=2)
    found = LiveState.find(tmp_path, "test")
    with pytest.raises(StateNotFound, match=r"job 'test', epoch .* has no operator 'everythin'; did you mean 'everything'"):
        found.get("everythin", "total", "u1")
    with pytest.raises(StateNotFound, match="has no state 'totl'; did you mean 'total'"):
        found.get("everything", "totl", "u1")
    with pytest.raises(TypeNotSupported, match="5"):
        found.get("everything", "total", 5)
    with pytest.raises(ConfigError, match="operator state"):
        found.get("buffer", "seen", "u1")
    with pytest.raises(StateNotFound, match="totl"):
        found.query("SELECT * FROM everything.totl")
    with pytest.raises(JobNotFound, match=r"there is no job 'tset'.*there are 'test'"):
        LiveState.find(tmp_path, "tset")
    with pytest.raises(JobNotFound, match="there are none yet"):
        LiveState.find(tmp_path / "empty", "test")


def test_a_job_that_has_removed_its_state_has_none(tmp_path: Path) -> None:
    class Forgets(fp.KeyedProcessFunction):
        n = fp.ValueStateDescriptor("n", int)

        def process_element(self, n: int, ctx: Any) -> Iterator[int]:
            self.n.clear() if n % 2 else self.n.update(n)
            yield n

    def job(env: Any, source: Any) -> None:
        numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        numbers.key_by(lambda n: n // 2, int).process(Forgets(), int).uid("forgets").sink_to(fp.DiscardSink()).uid("out")

    run_local(job, [*range(21)], state_root=tmp_path, epochs=1)
    found = LiveState.find(tmp_path, "test")
    assert [(row.key, row.value) for row in found.state("forgets", "n").rows()] == [(10, 20)]
    assert (found.get("forgets", "n", 3), found.get("forgets", "n", 10)) == (None, 20)


@pytest.mark.spark
def test_a_job_on_spark_is_read_while_it_runs(tmp_path: Path, session: Any) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.configure({"execution.engine": "spark"}).set_state_root(str(tmp_path))
    env.set_parallelism(2).enable_checkpointing(1)
    seen_job(env)
    client = env.execute_async("test")
    try:
        with StateFollower(tmp_path, "test") as follower:
            once_committed(tmp_path, 3)
            for _ in epochs_beyond(tmp_path, 10):
                assert assert_consistent(follower.newest()) >= 0
            assert assert_consistent(LiveState.find(tmp_path, "test")) > 0
    finally:
        client.cancel().result()
