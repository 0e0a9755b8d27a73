"""A job is handed over to another run: both sides, on storage, with a clock of their own."""

import threading

import pytest

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.lease import LEASE, Lease
from forkpoint.checkpoint.manifest import RUN, Manifest, Run
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.lead import handing_over
from forkpoint.driver.lead.handing_over import Follower, HandOver, Successor, is_close
from forkpoint.driver.lead.lease import LeaseKeeper
from forkpoint.driver.run.requests import HandOverRequest
from forkpoint.errors import ConfigError, JobFailed, StaleGeneration, StorageError
from forkpoint.storage.base import LocalStorage

PATHS = JobPaths("j")


def manifest(epoch, run, generation=1, kind="epoch"):
    return Manifest(
        job="j",
        run=run,
        generation=generation,
        epoch=epoch,
        kind=kind,
        created_ms=0,
        processing_time_ms=0,
        parallelism=1,
        max_parallelism=8,
    )


@pytest.fixture
def history(tmp_path):
    history = History(LocalStorage(str(tmp_path)), PATHS)
    history.commit(manifest(1, "a", kind="start"))
    return history


class Leader:
    """Run "a", at the edge of epoch 1. ``then``: what happens while it holds, by the number of the look."""

    def __init__(self, history, then=None):
        self.history = history
        self.lease = LeaseKeeper(history.storage, PATHS, "a", lambda: 1)
        self.handing_over = HandOver(history, self.lease)
        self.request = HandOverRequest("b")
        self.handing_over.begin(self.request)
        self.looks = 0
        self.then = then or {}

    @property
    def successor(self):
        return LEASE.load(self.history.storage, PATHS.lease_file("a")).successor

    def hand_over(self):
        def paused(seconds):
            self.looks += 1
            return bool(self.then.get(self.looks, lambda: None)())

        return self.handing_over.hand_over(manifest(1, "a"), paused)


def test_the_leader_ends_once_its_successor_leads(history):
    seen = []
    leader = Leader(history)
    leader.then = {
        2: lambda: seen.append(leader.successor),
        3: lambda: history.commit(manifest(2, "b", 2, "start")),
    }
    assert leader.hand_over()
    assert (leader.looks, seen, leader.request.done.result()) == (3, ["b"], 1)
    assert not leader.handing_over.wanted


def test_it_goes_on_if_the_successor_does_not_come(history, monkeypatch):
    monkeypatch.setattr(handing_over, "HOLD_SECONDS", 0.05)
    leader = Leader(history)
    assert not leader.hand_over()
    assert leader.successor is None
    with pytest.raises(JobFailed, match=r"run b has not taken over job 'j' within 0\.05 s; run a continues"):
        leader.request.done.result()
    history.commit(manifest(2, "a"))


def test_it_goes_on_to_be_cancelled(history):
    leader = Leader(history, {2: lambda: True})
    assert not leader.hand_over()
    assert (leader.looks, leader.successor) == (2, None)


def test_another_run_than_the_successor_fences_it(history):
    leader = Leader(history, {2: lambda: history.commit(manifest(2, "c", 2, "start"))})
    with pytest.raises(StaleGeneration, match="run 'c'"):
        leader.hand_over()


def test_storage_that_fails_meanwhile_proves_nothing(history, monkeypatch):
    listing = LocalStorage.list

    def fail(self, prefix=""):
        raise StorageError("out of reach")

    leader = Leader(history)
    leader.then = {
        2: lambda: monkeypatch.setattr(LocalStorage, "list", fail),
        5: lambda: monkeypatch.setattr(LocalStorage, "list", listing),
        6: lambda: history.commit(manifest(2, "b", 2, "start")),
    }
    assert leader.hand_over()
    assert leader.looks == 6


def test_one_successor_at_a_time(history):
    leader, second = Leader(history), HandOverRequest("c")
    leader.handing_over.begin(second)
    with pytest.raises(ConfigError, match="already being handed over to run b"):
        second.done.result()
    leader.handing_over.close(JobFailed("over"))
    with pytest.raises(JobFailed, match="over"):
        leader.request.done.result()


class Waiting:
    """Run "b", which is to replace "a". Half a second passes between two looks."""

    def __init__(self, history, events=None):
        self.history = history
        self.followed = []
        self.now = 0.0
        self.looks = 0
        self.events = events or {}

    def lease(self, renewals, successor=None, epoch=1):
        lease = Lease(job="j", run="a", renewals=renewals, ttl_ms=1000, epoch=epoch, successor=successor)
        self.history.storage.put(PATHS.lease_file("a"), LEASE.dump(lease))

    def wait(self):
        def cancelled(seconds):
            self.now += 0.5
            self.looks += 1
            if event := self.events.pop(self.looks, None):
                event()
            return self.looks > 200

        return Successor(self.history, "b", "a", self.followed.append, lambda: self.now).wait(cancelled)


def test_the_successor_follows_until_it_is_named(history):
    run = Waiting(history)
    run.events = {look: lambda look=look: run.lease(look, epoch=look) for look in range(1, 20)}
    run.events[20] = lambda: run.lease(20, "c")  # another one
    run.events[21] = lambda: run.lease(21, "b")
    run.wait()
    assert run.looks == 21
    assert run.followed == [*range(1, 20), 1]


@pytest.mark.parametrize("outcome", ["stopped", "failed", "cancelled"])
def test_it_does_not_lead_after_a_leader_that_ended(history, outcome):
    run = Waiting(history)
    run.lease(0)

    def end():
        record = Run(job="j", run="a", generation=1, started_ms=0, outcome=outcome)
        history.storage.put(PATHS.run_file("a"), RUN.dump(record))
        history.storage.delete(PATHS.lease_file("a"))

    run.events[3] = end
    with pytest.raises(JobFailed, match=f"run a, which this one was to replace, has ended \\({outcome}\\)"):
        run.wait()


def test_it_does_not_lead_after_a_leader_that_was_killed(history):
    run = Waiting(history)
    run.lease(0)
    with pytest.raises(JobFailed, match="has given no sign of life"):
        run.wait()
    assert run.looks < 10


def test_it_does_not_lead_after_a_standby_took_over(history):
    run = Waiting(history)
    run.lease(0)
    run.events[4] = lambda: history.commit(manifest(2, "c", 2, "start"))
    with pytest.raises(JobFailed, match="has been replaced by run c"):
        run.wait()


def test_a_leader_that_commits_without_a_lease_is_alive(history):
    run = Waiting(history)
    run.events = {look: lambda look=look: history.commit(manifest(look, "a")) for look in range(2, 60)}
    run.events[60] = lambda: run.lease(0, "b")
    run.wait()
    assert run.looks == 60


def test_it_does_not_wait_for_what_nobody_asks_for_any_more(history):
    """The upgrade that started it was killed."""
    run = Waiting(history)
    run.lease(0)
    waiting = Successor(history, "b", "a", run.followed.append, lambda: run.now, abandoned=lambda: True)
    with pytest.raises(JobFailed, match="was killed before it requested the hand-off"):
        waiting.wait(lambda seconds: False)
    run.lease(1, "b")
    waiting.wait(lambda seconds: False)  # it had asked


def test_it_does_not_wait_for_ever(history):
    run = Waiting(history)

    def cancelled(seconds):
        run.now += 100
        run.lease(int(run.now))
        return False

    with pytest.raises(JobFailed, match="has not handed the job over within 60 minutes"):
        Successor(history, "b", "a", run.followed.append, lambda: run.now).wait(cancelled)


def test_when_stores_are_close_enough():
    assert is_close(0.9, float("inf"))
    assert not is_close(20, float("inf"))
    assert not is_close(5, 20)
    assert is_close(19, 20)  # it does not come closer


def test_a_follower_tells_when_it_is_close_and_survives_what_was_collected(history):
    prepared, close, again = [], [], threading.Event()

    def prepare(manifest):
        prepared.append(manifest.epoch)
        if manifest.epoch == 1:
            again.wait()

    with Follower(history, prepare, close.append) as follower:
        follower.follow(1)
        follower.follow(2)  # one at a time
        again.set()
        while not close:
            pass
        follower.follow(7)  # its manifest is gone
        follower.follow(7)
    assert (prepared, close) == ([1], [1])
