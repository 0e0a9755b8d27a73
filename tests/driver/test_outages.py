"""An object store that is slow, refuses, loses answers or cuts them short: the job pauses, says so, and goes on by itself."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from jobs import Bulky, Crash, StopAfter, clicks, finish, history, job, run, state_of, sums

import forkpoint as fp
from forkpoint.driver.commit import garbage
from forkpoint.driver.observe.events import Restarting
from forkpoint.driver.run import epochs
from forkpoint.errors import AlreadyExists, StorageError, StorageUnavailable, UserFunctionError
from forkpoint.graph.options import JobOptions, RestartStrategy
from forkpoint.storage import object_storage
from forkpoint.storage.base import Storage, open_storage
from patience import PATIENCE_S
from threadless import AtOnce
from unreliable import BUCKET, KINDS, Fault, UnreliableProxy, s3_environment, s3_server

ELEMENTS = clicks(30)
# A healthy server must answer by then, however busy the machine is.
SILENCE_S = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with s3_server() as address:
        yield address


@pytest.fixture
def proxy(server: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[UnreliableProxy]:
    """Between the store and its clients, which repeat requests at shorter intervals than usual."""
    proxy = UnreliableProxy(server)
    for name, value in s3_environment(proxy.endpoint).items():
        monkeypatch.setenv(name, value)
    backoff = {"init_backoff": timedelta(milliseconds=10), "max_backoff": timedelta(milliseconds=50), "base": 2}
    monkeypatch.setattr(object_storage, "RETRY", {**object_storage.RETRY, "backoff": backoff})
    yield proxy
    proxy.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients give up after a fraction of a second instead of a minute."""
    monkeypatch.setattr(object_storage, "RETRY", {**object_storage.RETRY, "retry_timeout": timedelta(seconds=0.15)})


@pytest.fixture
def silence_is_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection counts as lost after a second or so."""
    monkeypatch.setattr(object_storage, "TIMEOUTS", {"read_timeout": f"{SILENCE_S * 1000:.0f}ms"})


@pytest.fixture
def root() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def storage(proxy: UnreliableProxy, root: str) -> Storage:
    return open_storage(root)


# -- the storage


@pytest.mark.usefixtures("silence_is_loss")
@pytest.mark.parametrize(
    ("times", "kind"),
    [
        *[(times, kind) for times in (1, 2) for kind in ("lost answer", "late error", "cut", "error")],
        (1, "hang"),
        pytest.param(2, "hang", marks=pytest.mark.slow),
    ],
)
def test_a_created_file_is_the_callers_whatever_happened_to_the_answer(
    proxy: UnreliableProxy, storage: Storage, kind: Any, times: int
) -> None:
    proxy.inject(Fault(kind, on="^create", times=times))
    try:
        storage.create("a", b"mine")
    except StorageUnavailable:
        assert (kind, times) == ("hang", 2)  # its outcome is unknown
        storage.create("a", b"mine")
    assert proxy.met[f"{kind} create"] == times
    assert storage.read("a") == b"mine"
    with pytest.raises(AlreadyExists):
        storage.create("a", b"mine")


@pytest.mark.usefixtures("hasty")
def test_a_conflict_with_a_request_that_comes_to_nothing_is_no_file(proxy: UnreliableProxy, storage: Storage) -> None:
    proxy.inject(Fault("error", on="^create", times=1, status=409))
    storage.create("a", b"1")
    proxy.inject(Fault("error", on="^create", status=409))
    with pytest.raises(StorageUnavailable, match="another request is in flight"):
        storage.create("b", b"1")


def test_everything_else_is_repeated(proxy: UnreliableProxy, storage: Storage) -> None:
    for kind in ("lost answer", "late error", "cut", "error"):
        proxy.inject(Fault(kind, times=2))  # type: ignore[arg-type]
        storage.put("a/1", b"1" * 100_000)
        proxy.inject(Fault(kind, times=2))  # type: ignore[arg-type]
        assert storage.list("a") == ["a/1"]
        proxy.inject(Fault(kind, times=2))  # type: ignore[arg-type]
        assert storage.read("a/1") == b"1" * 100_000
        proxy.inject(Fault(kind, times=2))  # type: ignore[arg-type]
        storage.delete("a/1")
        assert not storage.exists("a/1")


def test_a_body_that_is_cut_short_is_read_on(proxy: UnreliableProxy, storage: Storage) -> None:
    data = bytes(range(256)) * 4000
    storage.put("a", data)
    proxy.inject(Fault("truncated", on="^get", times=3))
    assert storage.read("a") == data
    assert proxy.met["truncated get"] == 3


@pytest.mark.usefixtures("silence_is_loss")
def test_a_slow_body_is_no_failure(proxy: UnreliableProxy, storage: Storage) -> None:
    data = bytes(200_000)
    storage.put("a", data)
    proxy.inject(Fault("throttled", on="^get", times=1, bytes_per_second=100_000))
    assert storage.read("a") == data  # takes a second, longer as a silent connection is waited for
    assert proxy.requests["get"] == 1


@pytest.mark.usefixtures("hasty")
def test_storage_that_does_not_answer_is_told_from_wrong_requests(proxy: UnreliableProxy, storage: Storage) -> None:
    proxy.inject(Fault("error", status=400))
    with pytest.raises(StorageError) as refused:
        storage.put("a", b"")
    assert not isinstance(refused.value, StorageUnavailable)
    proxy.heal()
    proxy.refuse()
    with pytest.raises(StorageUnavailable, match=r"write s3://.*/a from host .* does not answer: .*Connection refused"):
        storage.put("a", b"")


# -- jobs


def lines(out: Path) -> list[str]:
    return sorted(line for file in out.rglob("part-*") for line in file.read_text().splitlines())


def expected() -> list[str]:
    found, totals = [], dict[int, int]()
    for click in ELEMENTS:
        totals[click.user] = totals.get(click.user, 0) + click.count
        found.append(str((click.user, totals[click.user])))
    return sorted(found)


def impatient(options: JobOptions) -> JobOptions:
    """Gives up at the first failure of the job's own."""
    return replace(options, restart=RestartStrategy.fixed_delay(0, 10))


@dataclass
class AtStep:
    """Does something at a step of an epoch, once, and keeps the events."""

    step: str
    epoch: int
    action: Any

    def on_step(self, step: str, epoch: int) -> None:
        if self.action is not None and (step, epoch) == (self.step, self.epoch):
            action, self.action = self.action, None
            action()


def check(root: str, out: Path) -> None:
    assert lines(out) == expected()
    assert state_of(root) == sums(ELEMENTS)


@pytest.mark.slow
@pytest.mark.usefixtures("silence_is_loss")
@pytest.mark.parametrize(("kind", "times"), [("lost answer", 2), ("late error", 2), ("cut", 2), ("truncated", 2), ("hang", 1)])
def test_faults_at_all_kinds_of_requests(
    proxy: UnreliableProxy, root: str, tmp_path: Path, kind: Any, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each kind once or twice in a row, from the second epoch on."""
    monkeypatch.setattr(garbage, "EVERY_EPOCHS", 1)
    monkeypatch.setattr(epochs, "SNAPSHOT_CHAIN", 1)

    def inject() -> None:
        proxy.inject(*(Fault(kind, on=f"^{on}", times=times) for on in KINDS))

    steps, sink = AtStep("planned", 2, inject), fp.FileSink.text(tmp_path)
    assert run(root, ELEMENTS, sink=sink, fn=Bulky(), steps=steps, change=impatient).outcome == "finished"
    assert proxy.met == {f"{kind} {on}": times for on in ("create", "put", "get", "head", "list", "delete")}
    proxy.heal()
    check(root, tmp_path)


@pytest.mark.usefixtures("hasty", "silence_is_loss")
@pytest.mark.parametrize(
    ("step", "outage"),
    [
        pytest.param("planned", "refuse", marks=pytest.mark.slow),
        ("computed", "refuse"),
        pytest.param("computed", "hang", marks=pytest.mark.slow),
        ("published", "slow down"),
    ],
)
def test_an_outage_pauses_the_job(
    proxy: UnreliableProxy, root: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, step: str, outage: str
) -> None:
    """For longer than requests are repeated, with more failures than the restart strategy allows."""
    caplog.set_level("INFO")
    seen = []

    def begins() -> None:
        if outage == "refuse":
            proxy.refuse()
        else:
            proxy.inject(Fault("error" if outage == "slow down" else "hang"))

    class Ends:
        """It works again at the second failure."""

        def on_event(self, event: Any) -> None:
            if isinstance(event, Restarting):
                seen.append((event, prepared.driver.status()))
                if len(seen) == 2:
                    proxy.heal()

    prepared = job(
        root,
        ELEMENTS,
        sink=fp.FileSink.text(tmp_path),
        steps=AtStep(step, 3, begins),
        change=impatient,
        listeners=[Ends()],
    )
    assert finish(prepared).outcome == "finished"
    check(root, tmp_path)
    assert len(seen) == 2
    assert {event.restarts for event, _ in seen} == {1}  # it is one outage
    for event, status in seen:
        assert "paused because storage has been unavailable since 20" in event.failure
        assert "does not answer" in event.failure
        assert (status.state, status.failure) == ("restarting", event.failure)
    assert any("continues after an outage of" in message for message in caplog.messages)


def test_the_jobs_own_failures_still_count(proxy: UnreliableProxy, root: str) -> None:
    class Fails(fp.KeyedProcessFunction):
        def process_element(self, click: Any, ctx: Any) -> Any:
            raise ValueError("always")

    with pytest.raises(UserFunctionError, match="always"):
        run(root, ELEMENTS, fn=Fails(), change=impatient)


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_without_restarts_an_outage_ends_the_job_and_the_next_run_goes_on(
    proxy: UnreliableProxy, root: str, tmp_path: Path
) -> None:
    for step, epoch in (("planned", 3), ("computed", 5)):
        with pytest.raises(StorageUnavailable):
            run(root, ELEMENTS, sink=fp.FileSink.text(tmp_path), steps=AtStep(step, epoch, proxy.refuse))
        with pytest.raises(StorageUnavailable, match="does not answer"):  # neither does a start wait for it
            run(root, ELEMENTS, sink=fp.FileSink.text(tmp_path))
        proxy.heal()
    run(root, ELEMENTS, sink=fp.FileSink.text(tmp_path))
    check(root, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("hasty", "silence_is_loss")
@pytest.mark.parametrize("kind", ["lost answer", "hang"])
def test_a_start_whose_commit_gets_no_answer_leaves_nothing_wrong(
    proxy: UnreliableProxy, root: str, tmp_path: Path, kind: Any
) -> None:
    with pytest.raises(Crash):
        run(root, ELEMENTS, sink=fp.FileSink.text(tmp_path), steps=StopAfter(2))
    proxy.inject(Fault(kind, on="^create .*/checkpoints/"))
    with pytest.raises(StorageUnavailable):
        run(root, ELEMENTS, sink=fp.FileSink.text(tmp_path), change=impatient)
    proxy.heal()
    run(root, ELEMENTS, sink=fp.FileSink.text(tmp_path))
    check(root, tmp_path)


@pytest.mark.usefixtures("hasty", "silence_is_loss")
def test_a_commit_that_takes_effect_after_it_was_given_up(
    proxy: UnreliableProxy, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests are executed late, when both tries have been given up and the run has begun to recover."""
    proxy.inject(Fault("delay", on="^create .*/checkpoints/0+4", times=2, seconds=2 * SILENCE_S))
    result = run(root, ELEMENTS, sink=fp.FileSink.text(tmp_path), change=impatient)
    assert result.outcome == "finished"
    assert proxy.met["delay create"] == 2
    check(root, tmp_path)


@pytest.mark.usefixtures("hasty")
def test_a_savepoint_during_an_outage_fails_alone(proxy: UnreliableProxy, root: str, tmp_path: Path) -> None:
    """Its own requests fail; the job's don't."""
    asked = []

    def ask() -> None:
        proxy.inject(Fault("error", on=r"/savepoints/"))
        asked.append(prepared.driver.savepoint())

    def ask_again() -> None:
        assert isinstance(asked[0].done.exception(PATIENCE_S), StorageUnavailable)
        proxy.heal()
        asked.append(prepared.driver.savepoint())

    class Asks:
        def on_step(self, step: str, epoch: int) -> None:
            if step == "published" and epoch in (3, 5):
                (ask if epoch == 3 else ask_again)()

    prepared = job(root, ELEMENTS, sink=fp.FileSink.text(tmp_path), steps=Asks(), change=impatient)
    assert finish(prepared).outcome == "finished"
    assert prepared.driver.status().restarts == 0
    assert asked[1].done.result(PATIENCE_S)
    check(root, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("on", ["create", "put", "get", "list", "delete"])
def test_stopping_with_a_savepoint_despite_lost_answers(proxy: UnreliableProxy, root: str, tmp_path: Path, on: str) -> None:
    asked = []

    def ask() -> None:
        proxy.inject(Fault("lost answer", on=f"^{on}", times=3))
        asked.append(prepared.driver.savepoint(stop=True))

    prepared = job(root, ELEMENTS, sink=fp.FileSink.text(tmp_path), steps=AtStep("published", 3, ask), change=impatient)
    assert finish(prepared).outcome == "stopped"
    proxy.heal()
    run(root, ELEMENTS, sink=fp.FileSink.text(tmp_path), savepoint=asked[0].done.result())
    check(root, tmp_path)


@pytest.mark.usefixtures("hasty")
def test_cleaning_up_waits_for_the_next_time(
    proxy: UnreliableProxy, root: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(garbage, "EVERY_EPOCHS", 1)
    monkeypatch.setattr(garbage, "ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr(epochs, "SNAPSHOT_CHAIN", 1)
    proxy.inject(Fault("error", on="^delete"))

    def heal() -> None:
        assert any("old checkpoints were not removed" in message for message in caplog.messages)
        proxy.heal()

    result = run(root, ELEMENTS, steps=AtStep("planned", 6, heal), change=impatient)
    assert result.outcome == "finished"
    assert history(root).epochs()[0] > 3
    assert state_of(root) == sums(ELEMENTS)


@pytest.mark.usefixtures("hasty")
def test_a_cancel_during_an_outage_ends_the_job_and_loses_no_output(proxy: UnreliableProxy, root: str, tmp_path: Path) -> None:
    """The outage begins between an epoch's commit and its publication."""
    paused = threading.Event()

    class Cancels:
        def on_event(self, event: Any) -> None:
            if isinstance(event, Restarting) and not paused.is_set():
                paused.set()
                prepared.driver.cancel()

    prepared = job(
        root,
        ELEMENTS,
        sink=fp.FileSink.text(tmp_path),
        change=impatient,
        listeners=[Cancels()],
        steps=AtStep("written", 4, lambda: proxy.inject(Fault("error", on="^(list|put)"))),
    )
    assert finish(prepared).outcome == "cancelled"
    assert len(lines(tmp_path)) == 10
    proxy.heal()
    assert history(root).epochs()[-1] == 4
    run(root, ELEMENTS, sink=fp.FileSink.text(tmp_path))
    check(root, tmp_path)


def test_a_slow_store_only_slows_the_job_down(proxy: UnreliableProxy, root: str, tmp_path: Path) -> None:
    proxy.inject(Fault("delay", seconds=0.01, jitter=0.01))
    result = run(root, ELEMENTS, sink=fp.FileSink.text(tmp_path))
    assert result.outcome == "finished"
    proxy.heal()
    check(root, tmp_path)
