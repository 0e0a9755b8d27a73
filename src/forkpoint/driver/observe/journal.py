"""The recent history of a run, from its events: epochs, failures, savepoints. For people who inspect a job."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from forkpoint.driver.observe.events import (
    AttemptStarted,
    EpochCommitted,
    EpochReached,
    Event,
    Restarting,
    RunEnded,
    SavepointEnded,
    SavepointProgressed,
)
from forkpoint.protocol.messages import EpochEntry, FailureEntry, SavepointEntry

KEPT_EPOCHS, KEPT_FAILURES, KEPT_SAVEPOINTS = 200, 20, 50


class Journal(msgspec.Struct, frozen=True):
    """The newest entries of each kind, oldest first. ``committed`` and ``failed``: the total numbers of committed epochs and
    failed attempts. ``restored``: the epoch from which the run has (re)started, and the time; None without initial state."""

    epochs: tuple[EpochEntry, ...] = ()
    failures: tuple[FailureEntry, ...] = ()
    savepoints: tuple[SavepointEntry, ...] = ()
    committed: int = 0
    failed: int = 0
    restored: tuple[int, int] | None = None


class JournalListener:
    """Keeps the journal up to date; any thread may read it."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.journal = Journal()
        self._now_ms = now_ms
        self._lock = threading.Lock()  # savepoints send events on their own threads

    def on_event(self, event: Event) -> None:
        with self._lock:
            self.journal = after(self.journal, event, self._now_ms())


def after(journal: Journal, event: Event, now_ms: int) -> Journal:
    """The journal after an event. Pure."""
    match event:
        case AttemptStarted(epoch):
            return replace(journal, restored=None if event.from_nothing else (epoch, now_ms))
        case EpochReached(epoch, "planned", at_ms):
            begun = EpochEntry(epoch, {"planned": at_ms})
            return replace(journal, epochs=(*journal.epochs, begun)[-KEPT_EPOCHS:])
        case EpochReached(epoch, phase, at_ms):
            return _with_newest(journal, epoch, lambda e: replace(e, phases={**e.phases, phase: at_ms}))
        case EpochCommitted():
            counted = replace(journal, committed=journal.committed + 1)
            return _with_newest(counted, event.epoch, lambda entry: _sized(entry, event))
        case Restarting(failure=str(failure)) | RunEnded(failure=str(failure)):
            entry = FailureEntry(now_ms, failure, event.restarts if isinstance(event, Restarting) else None)
            return replace(journal, failed=journal.failed + 1, failures=(*journal.failures, entry)[-KEPT_FAILURES:])
        case SavepointProgressed() | SavepointEnded():
            return replace(journal, savepoints=_savepoints(journal.savepoints, event, now_ms))
    return journal


def _with_newest(journal: Journal, epoch: int, change: Callable[[EpochEntry], EpochEntry]) -> Journal:
    """Change the newest epoch's entry, if it has this epoch."""
    if not journal.epochs or journal.epochs[-1].epoch != epoch:
        return journal
    return replace(journal, epochs=(*journal.epochs[:-1], change(journal.epochs[-1])))


def _sized(entry: EpochEntry, event: EpochCommitted) -> EpochEntry:
    records = {**event.records_out, **event.records_in}
    return replace(entry, records=records, changes_bytes=event.changes_bytes, snapshot_bytes=event.snapshot_bytes)


def _savepoints(
    known: tuple[SavepointEntry, ...], event: SavepointProgressed | SavepointEnded, now_ms: int
) -> tuple[SavepointEntry, ...]:
    before = next((e for e in known if e.savepoint == event.savepoint), None)
    entry = before or SavepointEntry(event.savepoint, event.epoch, now_ms)
    if isinstance(event, SavepointEnded):
        entry = replace(entry, ended_ms=now_ms, path=event.path, failure=event.failure)
    return (*(e for e in known if e is not before), entry)[-KEPT_SAVEPOINTS:]
