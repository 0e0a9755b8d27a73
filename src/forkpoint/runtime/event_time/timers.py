"""Timers of one operator on one subtask.

A timer is a store entry without a value, so registering and deleting it are idempotent and need no read. At the start of an
epoch, one scan per key group finds the timers that come due in the epoch; within the epoch, each key has a small heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from forkpoint.functions import MAX_WATERMARK, MIN_WATERMARK, TimerService, epoch_ms
from forkpoint.graph.specs import DeclaredState
from forkpoint.runtime.event_time.watermarks import MAX_MS, MIN_MS
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.state import Range, decode_timer_key, in_groups, kg_of, sid_range, sid_ranges, timer_key, timer_range
from forkpoint.types import TypeInformation

EVENT_TIMERS = "_event_timers"
PROCESSING_TIMERS = "_processing_timers"

Timer = tuple[int, bytes]  # time in ms, namespace


def timer_states(space: TypeInformation | None = None) -> list[DeclaredState]:
    """The states that save timers. ``space``: the type of their namespaces."""
    return [
        DeclaredState(EVENT_TIMERS, "timers-event", None, space),
        DeclaredState(PROCESSING_TIMERS, "timers-processing", None, space),
    ]


class TimerQueue:
    """The timers of one time domain, for the current key."""

    def __init__(self, backend: KeyedBackend, name: str, kind: str, space: TypeInformation | None) -> None:
        self._backend = backend
        self.sid = backend.sid(name)
        backend.record(kind, name, None, space)
        self.horizon = MIN_MS
        self.only: frozenset[bytes] | None = None  # restricts find_due() to these keys
        self._due: dict[bytes, list[Timer]] = {}
        self._found: dict[int, frozenset[Timer]] = {}  # by key: timers known to be in the store
        self._changes: dict[tuple[int, Timer], bool] = {}
        self.heap: list[Timer] = []  # the current key's timers up to the horizon, including deleted ones
        self._live: set[Timer] = set()
        self.closed = False  # whether new timers are ignored
        self.engaged = False  # whether keys must be entered: usually no timer can fire

    def find_due(self, horizon_ms: int) -> list[bytes]:
        """Read the timers up to and including the horizon. Returns the encoded keys that have such timers."""
        self.horizon = to_flink_ms(horizon_ms)
        self._due, self._found, self._changes = {}, {}, {}
        if horizon_ms > MIN_MS:
            for due in self._stored(self.horizon):
                for entry, _ in self._backend.store.scan(*due):
                    _, _, time_ms, key, namespace = decode_timer_key(entry)
                    if self.only is None or key in self.only:
                        self._due.setdefault(key, []).append((time_ms, namespace))
        self.engaged = bool(self._due or self.heap or self._live)
        return list(self._due)

    def enter(self, index: int) -> None:
        if not self.engaged:
            return
        self.heap = self._due.pop(self._backend.key_bytes[index], [])
        self._live = set()
        if self.heap:
            heapq.heapify(self.heap)
            self._live.update(self.heap)
            self._found[index] = frozenset(self.heap)
        self.engaged = bool(self._due or self.heap)

    def register(self, time_ms: int, namespace: bytes = b"") -> None:
        if self.closed:
            return
        timer = (checked_ms(time_ms), namespace)
        self._changes[self._key(), timer] = True
        if timer[0] <= self.horizon and timer not in self._live:
            self._live.add(timer)
            heapq.heappush(self.heap, timer)
            self.engaged = True

    def delete(self, time_ms: int, namespace: bytes = b"") -> None:
        timer = (checked_ms(time_ms), namespace)
        self._changes[self._key(), timer] = False
        self._live.discard(timer)

    def pop(self, until_ms: int) -> Timer | None:
        """Remove and return the current key's next timer up to and including this watermark."""
        if until_ms >= MAX_MS:
            until_ms = MAX_WATERMARK
        while self.heap and self.heap[0][0] <= until_ms:
            timer = heapq.heappop(self.heap)
            if timer in self._live:
                self._live.discard(timer)
                self._changes[self._key(), timer] = False
                return timer
        return None

    def pending(self) -> dict[bytes, int]:
        """The time of the first timer up to the horizon, by encoded key, of keys that are not yet entered."""
        return {key: min(timers)[0] for key, timers in self._due.items()}

    def put_back(self) -> int | None:
        """Keep the current key's timers until the key is entered again in this epoch. Returns the time of the first timer."""
        if not self.engaged:
            return None
        live, self.heap, self._live = self._live, [], set()
        if live:
            self._due[self._backend.key_bytes[self._key()]] = list(live)
        self.engaged = bool(self._due)
        return min(live)[0] if live else None

    def _key(self) -> int:
        assert self._backend.current is not None
        return self._backend.current

    def collect(self, log: ChangeLog) -> None:
        backend = self._backend
        transient: list[bytes] = []  # removed, and perhaps never stored: most windows start and end within an epoch
        for (index, timer), kept in self._changes.items():
            name = timer_key(backend.key_groups[index], self.sid, timer[0], backend.key_bytes[index], timer[1])
            if kept or timer in self._found.get(index, ()):
                log.keys.append(name)
                log.values.append(b"" if kept else None)
            else:
                transient.append(name)
        for name, stored in zip(transient, backend.store.get_many(transient), strict=True):
            if stored is not None:
                log.keys.append(name)
                log.values.append(None)
        self._found, self._changes = {}, {}

    def earliest_after(self, time_ms: int) -> int | None:
        """A lower bound of the next timer's time: the minimum over stored timers after ``time_ms`` and new timers of this epoch,
        whose time may have passed."""
        found = [t for (_, (t, _)), kept in self._changes.items() if kept]
        for start, stop in self._stored(MAX_WATERMARK):
            _, begin = timer_range(kg_of(start), self.sid, time_ms)
            first = next(iter(self._backend.store.scan(max(start, begin), stop)), None)
            if first is not None:
                found.append(decode_timer_key(first[0]).ts_ms)
        return min(found, default=None)

    def _stored(self, until_ms: int) -> list[Range]:
        """The ranges of the store that may have timers up to and including a time."""
        return _stored(self._backend, self.sid, until_ms)


def _stored(backend: KeyedBackend, sid: int, until_ms: int) -> list[Range]:
    """The ranges of the store that may have timers up to and including a time."""
    store, (whole, until) = backend.store, (sid_range(0, sid), timer_range(0, sid, until_ms))
    with_timers = store.occupied(sid_ranges(*backend.groups, sid))  # usually none, which the store knows
    if until == whole or not with_timers:
        return with_timers
    return store.occupied(in_groups([kg_of(start) for start, _ in with_timers], until))


def timers_until(backend: KeyedBackend, sid: int, until_ms: int) -> list[bytes]:
    """The store keys of the timers up to and including a time."""
    found: list[bytes] = []
    for start, stop in _stored(backend, sid, to_flink_ms(until_ms)):
        found += [name for name, _ in backend.store.scan(start, stop)]
    return found


class Timers(TimerService):
    """The timer service of an operator's function, with both time domains."""

    def __init__(self, backend: KeyedBackend, space: TypeInformation | None = None) -> None:
        """``space``: the type of the timers' namespaces, None without namespaces."""
        self.event = TimerQueue(backend, EVENT_TIMERS, "timers-event", space)
        self.processing = TimerQueue(backend, PROCESSING_TIMERS, "timers-processing", space)
        self._backend = backend
        self.watermark: Callable[[], int] = lambda: MIN_MS

    def begin(self, event_horizon_ms: int, processing_time_ms: int) -> list[bytes]:
        """Start an epoch. Returns the encoded keys with timers that come due in it."""
        due = self.event.find_due(event_horizon_ms)
        return list(dict.fromkeys(due + self.processing.find_due(processing_time_ms)))

    @property
    def saved(self) -> bool:
        """Whether the store has timers."""
        return any(_stored(self._backend, queue.sid, MAX_WATERMARK) for queue in (self.event, self.processing))

    def enter(self, index: int) -> None:
        self.event.enter(index)
        self.processing.enter(index)

    def closed(self, closed: bool) -> None:
        """Set whether new timers are ignored: at the end of a batch, timers cannot register timers, as in Flink."""
        self.event.closed = self.processing.closed = closed

    def collect(self, log: ChangeLog) -> None:
        self.event.collect(log)
        self.processing.collect(log)

    def current_processing_time(self) -> int:
        return self._backend.processing_time_ms

    def current_watermark(self) -> int:
        return to_flink_ms(self.watermark())

    def register_event_time_timer(self, timestamp: int) -> None:
        self.event.register(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self.event.delete(timestamp)

    def register_processing_time_timer(self, timestamp: int) -> None:
        self.processing.register(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self.processing.delete(timestamp)


def checked_ms(time_ms: int) -> int:
    """A timer's time; raises ValueError or TypeError if it is invalid."""
    return time_ms if time_ms.__class__ is int and MIN_WATERMARK <= time_ms <= MAX_WATERMARK else epoch_ms(time_ms)


def to_flink_ms(time_ms: int) -> int:
    """A watermark, with the smallest and largest as Flink's MIN_WATERMARK and MAX_WATERMARK."""
    if time_ms <= MIN_MS:
        return MIN_WATERMARK
    return MAX_WATERMARK if time_ms >= MAX_MS else time_ms


def timer_ms(time_ms: int) -> int:
    """A timer's time for its function. Earlier versions stored MIN_MS and MAX_MS for the first and last time."""
    return to_flink_ms(time_ms) if time_ms in (MIN_MS, MAX_MS) else time_ms
