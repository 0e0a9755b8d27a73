"""Matches patterns in keyed streams: sorts each key's events by time, and feeds them to its partial matches.

A key without partial matches has no state, and its events are only asked whether one of them begins a match. In event time an
event waits until the watermark has passed it, and a partial match ends at the millisecond at which its time is over; both have a
timer. In processing time events are taken as they come, at the time of the epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cmp_to_key, partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from forkpoint.errors import ForkpointError
from forkpoint.functions import OutputTag
from forkpoint.graph.specs import DeclaredState
from forkpoint.patterns.compiling import automaton_of
from forkpoint.patterns.events import Asked, Emission, KeyEvents
from forkpoint.patterns.functions import PatternProcessFunction, TimedOutPartialMatchHandler
from forkpoint.patterns.matching import Matcher, Run, Runs
from forkpoint.patterns.pattern import Pattern
from forkpoint.patterns.stored import EVENTS, PARTIAL_MATCHES, RUNS, RunsCodec, events_descriptor, events_in, runs_descriptor
from forkpoint.runtime.event_time.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimerQueue, timers_until, to_flink_ms
from forkpoint.runtime.event_time.watermarks import MAX_MS
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.exchange.grouping import Groups, group_by_key
from forkpoint.runtime.operators.base import NOT_USERS, Context, Epoch, KeyedOperator, Outputs, TaskInfo, user_error
from forkpoint.runtime.operators.emission import Collector
from forkpoint.runtime.operators.event_time_sort import EventTimeSort, EventTimeSortSpec
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.operators.keyed_process import firing_rank, key_blocks
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.state import decode_timer_key, state_key, timer_key
from forkpoint.types import TypeInformation

Comparator = Callable[[Any, Any], int]
Events = list[tuple[int, Any]]
"""Elements with their times in ms."""


@dataclass(frozen=True)
class PatternSpec(KeyedSpec):
    """``fn`` receives the matches. ``comparator`` orders events of one time. ``late_tag``: for events behind the watermark; in
    processing time (not ``event_time``) there are none."""

    kind = "pattern"

    pattern: Pattern
    fn: PatternProcessFunction[Any, Any]
    element_type: TypeInformation
    comparator: Comparator | None = None
    late_tag: OutputTag[Any] | None = None
    event_time: bool = True

    def states(self) -> list[DeclaredState]:
        found = [DeclaredState.of(runs_descriptor()), DeclaredState.of(events_descriptor(self.element_type))]
        if not self.event_time:
            return [*found, DeclaredState(PROCESSING_TIMERS, "timers-processing", None)]
        return [*found, *self.sorting.states()]

    @property
    def sorting(self) -> EventTimeSortSpec:
        return EventTimeSortSpec(self.element_type, self.late_tag)

    def instance(self, info: TaskInfo, state: ManagedState) -> PatternMatching:
        return PatternMatching(info, state.keyed, self)


class PatternMatching(KeyedOperator):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: PatternSpec) -> None:
        super().__init__(info, backend)
        automaton = automaton_of(spec.pattern)
        self._matcher = Matcher(automaton, spec.pattern.skip, self._uid)
        self._codec = RunsCodec(automaton, self._uid)
        self._compare = None if spec.comparator is None else cmp_to_key(spec.comparator)
        self._collector = Collector(info.operator)
        self._fn = spec.fn
        self._handler = spec.fn if isinstance(spec.fn, TimedOutPartialMatchHandler) else None
        self._functions = [spec.fn, *(fn for atom in automaton.atoms if (fn := atom.function) is not None)]
        for fn in self._functions:
            fn.open(Context(info, backend))
        backend.record("value", PARTIAL_MATCHES, RUNS)
        self._sid = backend.sid(PARTIAL_MATCHES)
        self._events = KeyEvents(backend, EVENTS, spec.element_type)
        self._asked = Asked(self._events)
        self._sort = EventTimeSort(info, backend, spec.sorting) if spec.event_time else None
        if spec.event_time:
            self._timers = backend.sid(EVENT_TIMERS)
        else:
            self._queue = TimerQueue(backend, PROCESSING_TIMERS, "timers-processing", None)
            self._timers = self._queue.sid
        self._rank = firing_rank(info.operator.stage, event=spec.event_time)
        self._next_timer: int | None = None
        self._set: list[int] = []
        self._log = ChangeLog()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        self._log, self._set = ChangeLog(), []
        self._collector.begin(epoch)
        if self._sort is not None:
            ready, now_ms = self._sort.run(inputs, epoch), to_flink_ms(epoch.window.end)
            due: Sequence[bytes] = self._sort.due_keys
        else:
            ready, now_ms = Outputs(inputs[0]), MAX_MS if epoch.fires_all else epoch.processing_time_ms
            fired = timers_until(self._backend, self._queue.sid, now_ms)
            self._log.delete(fired)
            due = [decode_timer_key(name).key for name in fired]
        groups = self._begin(ready.main, due, epoch)
        self._asked.processing_time_ms = epoch.processing_time_ms
        emission = Emission(self._collector, self._events, epoch.processing_time_ms)
        for key, stored, events in self._to_match(ready.main, groups, epoch):
            self._match(key, stored, events, now_ms, emission)
        if self._sort is None:
            self._next_timer = min(
                (at for at in (self._queue.earliest_after(now_ms), *self._set) if at is not None), default=None
            )
        before_ms = None if self._sort is not None else epoch.window.before
        found = self._collector.outputs(emission.batch(self._backend, self._rank, self._type, before_ms))
        return Outputs(found.main, found.sides | ready.sides, ready.late_records_dropped, found.mutable)

    def _begin(self, batch: Batch, due: Sequence[bytes], epoch: Epoch) -> Groups:
        """Group the events by key. ``due``: keys with a timer that fires in this epoch, which may have none."""
        groups, of = group_by_key(batch, self._key), self._backend.key_type
        known = set(map(of.encode, groups.keys)) if due else set()
        others = [of.decode(key) for key in dict.fromkeys(due) if key not in known]
        self._backend.begin(groups.keys + others, epoch.processing_time_ms, lambda: epoch.window.start)
        self._events.begin()
        return groups

    def _to_match(self, batch: Batch, groups: Groups, epoch: Epoch) -> Iterator[tuple[int, bytes | None, Events]]:
        """Keys with partial matches, or with an event that begins one: index, stored partial matches, and events in order."""
        stored = self._backend.store.get_many(self._backend.prefixes(self._sid))
        stamps = batch.stamps[groups.order] if self._sort is not None else np.full(batch.size, epoch.processing_time_ms)
        for first, last, elements, starts in key_blocks(batch, groups):
            base = starts[first]
            times = stamps[base : base + len(elements)].tolist()
            begins = self._begins(elements, times, partial(_key_at, groups.keys, starts, base))
            for key in range(first, last):
                rows = slice(starts[key] - base, starts[key + 1] - base)
                if stored[key] is not None or any(begins[rows]):
                    events = list(zip(times[rows], elements[rows], strict=True))
                    yield key, stored[key], events if self._compare is None else self._ties_sorted(events, groups.keys[key])
        for key in range(len(groups.keys), len(stored)):
            if stored[key] is not None:
                yield key, stored[key], []

    def _begins(self, elements: list[Any], times: list[int], key: Callable[[int], Any]) -> list[bool]:
        """Which events begin a match. ``key``: of the event with this index."""
        atom, found = self._matcher.first_condition, list[bool]()
        with self._user_code(lambda: elements[len(found)], lambda: key(len(found))):
            if atom is not None:
                found.extend(map(atom.accepts, elements))
            else:
                for time_ms, element in zip(times, elements, strict=True):
                    self._asked.about(element, time_ms)
                    found.append(self._matcher.begins(self._asked))
        return found

    def _ties_sorted(self, events: Events, key: Any) -> Events:
        compare = self._compare
        assert compare is not None
        times = groupby(events, itemgetter(0))
        with self._user_code(lambda: [event for _, event in events], lambda: key):
            return [event for _, tied in times for event in sorted(tied, key=lambda event: compare(event[1]))]

    # -- one key

    def _match(self, key: int, stored: bytes | None, events: Events, now_ms: int, emission: Emission) -> None:
        """Feed a key's events to its partial matches, end those whose time is over, and store the others."""
        matcher, asked = self._matcher, self._asked
        self._backend.enter(key)
        self._events.enter(key)
        runs = Runs() if stored is None else self._codec.decode(stored)
        before, timeout = list(runs.all), matcher.next_timeout(runs)
        element: Any = None
        with self._user_code(lambda: element, lambda: self._backend.current_key):
            for time_ms, element in events:
                self._end(runs, key, time_ms, emission)
                asked.about(element, time_ms)
                self._events.add(runs.next_event, element)
                for match in matcher.accept(runs, time_ms, asked):
                    emission.add(self._fn.process_match(emission.matched(match, time_ms), emission), key)
            self._end(runs, key, now_ms, emission)
        after = list(runs.all)
        if len(before) != len(after) or any(old is not new for old, new in zip(before, after, strict=True)):
            self._store(key, before, runs, timeout)
        self._backend.leave()

    def _end(self, runs: Runs, key: int, until_ms: int, emission: Emission) -> None:
        """End the partial matches whose time is over by then, each at its own time."""
        while (at_ms := self._matcher.next_timeout(runs)) is not None and at_ms <= until_ms:
            matches, timed_out = self._matcher.advance(runs, at_ms)
            for match in timed_out if self._handler is not None else ():
                assert self._handler is not None
                emission.add(self._handler.process_timed_out_match(emission.matched(match, at_ms), emission), key)
            for match in matches:
                emission.add(self._fn.process_match(emission.matched(match, at_ms), emission), key)

    def _store(self, key: int, before: list[Run], runs: Runs, timeout: int | None) -> None:
        """Store what has become of a key's partial matches. ``timeout``: when the first of them had ended."""
        backend, after = self._backend, list(runs.all)
        self._log.keys.append(state_key(backend.key_groups[key], self._sid, backend.key_bytes[key]))
        self._log.values.append(self._codec.encode(runs) if after else None)
        self._events.store(events_in(before), events_in(after), self._log)
        next_ms = self._matcher.next_timeout(runs)
        if next_ms is not None and next_ms != timeout:
            self._set.append(next_ms)
            self._log.keys.append(timer_key(backend.key_groups[key], self._timers, next_ms, backend.key_bytes[key]))
            self._log.values.append(b"")

    @contextmanager
    def _user_code(self, element: Callable[[], Any], key: Callable[[], Any]) -> Iterator[None]:
        try:
            yield
        except (ForkpointError, *NOT_USERS):
            raise
        except BaseException as error:
            raise user_error(self._uid, error, element(), key(), keyed=True) from error

    # -- state

    def changes(self) -> ChangeLog:
        log = ChangeLog()
        if self._sort is not None:
            sorting = self._sort.changes()
            log.add(sorting.keys, sorting.values)
        log.add(self._log.keys, self._log.values)
        return log

    def next_processing_timer_ms(self) -> int | None:
        return self._next_timer

    def close(self) -> None:
        for fn in self._functions:
            fn.close()


def _key_at(keys: Sequence[Any], starts: Sequence[int], base: int, at: int) -> Any:
    """The key of the event with this index, of those from ``base`` on."""
    return keys[bisect_right(starts, base + at) - 1]
