"""What a standby concludes from the leader's lease, records and manifests."""

import threading

import pytest
from jobs import Crash, StopAfter, clicks, run

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.lease import LEASE, Lease
from forkpoint.checkpoint.manifest import RUN, Manifest, Run
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.commit.publisher import Republisher
from forkpoint.driver.lead.handing_over import Follower
from forkpoint.driver.lead.lease import LeaseKeeper
from forkpoint.driver.lead.standby import HandedOver, LeaderEnded, Standby, TakeOver, Watch, after_commit, after_lease, ended
from forkpoint.errors import StorageError
from forkpoint.storage.base import LocalStorage

PATHS = JobPaths("j")


def lease(renewals, run="a", epoch=1):
    return Lease(job="j", run=run, renewals=renewals, ttl_ms=1000, epoch=epoch)


def manifest(epoch, run, generation=1, kind="start"):
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


def record(run, outcome=None, **more):
    return Run(job="j", run=run, generation=1, started_ms=0, outcome=outcome, **more)


def test_only_a_changed_lease_is_a_sign_of_life():
    watch = Watch("a", 10.0)
    watch = after_lease(watch, lease(7), 11.0)
    assert watch == Watch("a", 11.0, 7, 1000)
    assert after_lease(watch, lease(7), 11.9) == watch
    assert after_lease(watch, None, 11.9) == watch
    assert not watch.expired(12.0)
    assert watch.expired(12.01)
    assert after_lease(watch, lease(0), 12.0).since == 12.0  # its clock and its count mean nothing, only that it changed


@pytest.mark.parametrize(
    ("last", "over"),
    [
        (record("a"), False),
        (None, False),
        (record("a", "stopped"), True),
        (record("a", "failed"), True),
        (record("a", "failed", engine_lost=True), False),
    ],
)
def test_which_ends_are_final(last, over):
    assert (ended(last) is not None) == over


class Scene:
    """A job on storage, and a standby whose time passes by half a second a look."""

    def __init__(self, directory):
        self.storage = LocalStorage(str(directory))
        self.history = History(self.storage, PATHS)
        self.now = 0.0
        self.prepared = []
        self.events = {}  # by the number of the look: what happens before it
        self.looks = 0
        self.follower = Follower(self.history, self._prepare)
        self.standby = Standby(self.history, self.follower.follow, lambda: self.now)

    def _prepare(self, manifest):
        self.prepared.append(manifest.epoch)

    def lease(self, renewals, run="a", epoch=1):
        self.storage.put(PATHS.lease_file(run), LEASE.dump(lease(renewals, run, epoch)))

    def wait(self, limit=100):
        def cancelled(seconds):
            self.now += 0.5 if seconds else 0
            self.looks += 1
            if event := self.events.pop(self.looks, None):
                event()
            return self.looks > limit

        with self.follower:
            return self.standby.wait(cancelled)


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def test_a_job_that_never_ran_is_led_at_once(scene):
    assert scene.wait() == TakeOver(None)
    assert scene.looks == 1


def test_a_job_whose_last_run_has_ended_is_led_at_once(scene):
    scene.history.commit(manifest(1, "a"))
    scene.storage.put(PATHS.run_file("a"), RUN.dump(record("a", "stopped")))
    assert scene.wait() == TakeOver("a")
    assert scene.looks == 1


def test_a_leader_without_renewals_is_replaced_after_its_lease(scene):
    scene.history.commit(manifest(1, "a"))
    scene.lease(0)
    scene.events = {look: lambda look=look: scene.lease(look) for look in range(2, 20)}
    assert scene.wait() == TakeOver("a")
    assert scene.looks == 19 + 3  # two looks within the second that the lease lasts, and one after it


def test_a_leader_that_never_wrote_a_lease_is_replaced_too(scene):
    scene.history.commit(manifest(1, "a"))
    assert scene.wait() == TakeOver("a")
    assert scene.now > 3


def test_a_lease_cut_short_is_no_sign_of_life(scene):
    scene.history.commit(manifest(1, "a"))
    for look in range(2, 50):
        scene.events[look] = lambda look=look: scene.storage.put(PATHS.lease_file("a"), b'{"renewals": %d' % look)
    assert scene.wait() == TakeOver("a")
    assert 3 < scene.now < 4


def test_a_regular_end_ends_the_standby(scene):
    scene.history.commit(manifest(1, "a"))
    scene.lease(0)

    def stop():
        scene.storage.put(PATHS.run_file("a"), RUN.dump(record("a", "stopped")))
        scene.storage.delete(PATHS.lease_file("a"))

    scene.events[4] = stop
    over = scene.wait()
    assert isinstance(over, LeaderEnded)
    assert over.record.outcome == "stopped"


def test_a_leader_that_lost_its_engine_is_replaced_at_once(scene):
    scene.history.commit(manifest(1, "a"))
    scene.lease(0)

    def fail():
        scene.storage.put(PATHS.run_file("a"), RUN.dump(record("a", "failed", engine_lost=True)))
        scene.storage.delete(PATHS.lease_file("a"))

    scene.events[3] = fail
    assert scene.wait() == TakeOver("a")
    assert scene.looks == 3


@pytest.mark.parametrize("recorded", [False, True], ids=["its lease says so", "its record says so"])
def test_a_leader_that_hands_its_job_over_ends_the_standby(scene, recorded):
    """Else this program would take over from the one that has replaced it."""
    scene.history.commit(manifest(1, "a"))
    scene.lease(0)

    def hand_over():
        scene.history.commit(manifest(2, "b", 2))
        named = LEASE.dump(lease(0, "a", 1).replace(successor="b"))
        scene.storage.put(PATHS.lease_file("a"), named)
        if recorded:
            scene.storage.put(PATHS.run_file("a"), RUN.dump(record("a", "stopped")))
            scene.storage.delete(PATHS.lease_file("a"))

    scene.events[3] = hand_over
    over = scene.wait()
    assert over == HandedOver("j", "a", "b")
    assert over.outcome() == "stopped"


def test_another_standby_that_leads_is_watched_from_then_on(scene):
    scene.history.commit(manifest(1, "a"))
    scene.lease(0)
    scene.events = {look: lambda look=look: scene.lease(look, "b") for look in range(5, 31)}
    scene.events[4] = lambda: scene.history.commit(manifest(2, "b", 2))
    assert scene.wait() == TakeOver("b")
    assert scene.looks > 30


def test_a_standby_that_cannot_look_does_not_take_over(scene, monkeypatch):
    scene.history.commit(manifest(1, "a"))
    scene.lease(0)
    read = LocalStorage.read

    def fail(self, path, *args):
        raise StorageError("out of reach")

    scene.events[3] = lambda: monkeypatch.setattr(LocalStorage, "read", fail)

    def reachable():
        monkeypatch.setattr(LocalStorage, "read", read)
        scene.lease(1)

    scene.events[60] = reachable
    assert scene.wait() == TakeOver("a")
    assert scene.looks == 60 + 3


def test_it_follows_the_leaders_epochs(scene):
    scene.history.commit(manifest(1, "a"))
    scene.lease(0)
    done = threading.Event()

    def commit():
        scene.history.commit(manifest(2, "a", kind="epoch"))
        scene.lease(1, epoch=2)

    scene.events[3] = commit
    scene.wait()
    done.set()
    assert scene.prepared in ([1, 2], [2], [1])  # it prepares one at a time, and skips what it was too slow for
    assert scene.prepared


def test_a_keeper_renews_until_it_is_closed(tmp_path):
    storage = LocalStorage(str(tmp_path))
    keeper = LeaseKeeper(storage, PATHS, "a", lambda: 7, ttl_ms=30)
    keeper.start()
    while (found := LEASE.load_if_whole(storage, PATHS.lease_file("a"))) is None or found.renewals < 3:
        pass
    assert (found.run, found.epoch, found.ttl_ms) == ("a", 7, 30)
    keeper.close()
    assert not storage.exists(PATHS.lease_file("a"))


def test_a_keeper_survives_storage_that_fails(tmp_path, monkeypatch):
    storage = LocalStorage(str(tmp_path))
    put, failed = LocalStorage.put, []

    def fail(self, *args, **kwargs):
        failed.append(args)
        raise StorageError("full")

    monkeypatch.setattr(LocalStorage, "put", fail)
    keeper = LeaseKeeper(storage, PATHS, "a", lambda: 1, ttl_ms=30)
    keeper.start()
    while len(failed) < 3:
        pass
    monkeypatch.setattr(LocalStorage, "put", put)
    while LEASE.load_if_whole(storage, PATHS.lease_file("a")) is None:
        pass
    keeper.close()


def test_a_leader_that_commits_is_not_replaced_though_its_lease_is_never_renewed(scene):
    scene.history.commit(manifest(1, "a"))
    scene.lease(5)

    def commit(epoch):
        scene.history.commit(manifest(epoch, "a", kind="epoch"))

    scene.events = {look: lambda look=look: commit(look) for look in range(2, 122)}  # for a minute
    assert scene.wait(200) == TakeOver("a")
    assert scene.looks == 122 + 3  # commits are looked for every other time, while the lease is overdue


def test_one_commit_before_the_leader_died_does_not_prolong_its_lease():
    watch = Watch("a", 10.0, 7, 1000)
    assert not watch.overdue(10.5)
    assert watch.overdue(10.6)
    looked = after_commit(watch, manifest(9, "a"), 10.6)
    assert (looked.since, looked.epoch) == (10.0, 9)
    assert after_commit(looked, manifest(9, "a"), 10.9) == looked
    assert after_commit(looked, manifest(10, "a"), 10.9).since == 10.9
    assert after_commit(looked, manifest(10, "b"), 10.9) == Watch("b", 10.9)
    assert after_lease(looked, lease(8), 10.9).epoch is None


def test_a_run_has_a_lease_while_it_publishes_what_the_one_before_left(tmp_path, monkeypatch):
    with pytest.raises(Crash):
        run(tmp_path, clicks(40), steps=StopAfter(2))
    repeat, published = Republisher.repeat, []

    def slow(self, mine):
        lease_file = self.history.paths.lease_file(mine.run)
        while not self.history.storage.exists(lease_file):
            pass
        published.append(mine.run)
        repeat(self, mine)

    monkeypatch.setattr(Republisher, "repeat", slow)
    ended_run = run(tmp_path, clicks(40))
    assert published == [ended_run.run]
    storage = LocalStorage(str(tmp_path))
    assert not [path for path in storage.list() if path.endswith("lease.json")]
