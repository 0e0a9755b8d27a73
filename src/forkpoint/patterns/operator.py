"""Matches patterns in keyed streams: sorts each key's events by time, and feeds them to its partial matches.

A key without partial matches has no state, and its events are only asked whether one of them begins a match. In event time an
event waits until the watermark has passed it, and a partial match ends at the millisecond at which its time is over; both have a
timer. In processing time events are taken as they come, at the time of the epoch.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cmp_to_key, partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.errors import ForkpointError
from forkpoint.functions import OutputTag, ValueStateDescriptor
from forkpoint.graph.specs import DeclaredState
from forkpoint.patterns.changes import KEEP, Changed, definition_of
from forkpoint.patterns.compiling import compiled
from forkpoint.patterns.conditions import Atom
from forkpoint.patterns.events import Asked, Emission, Events, KeyEvents, Remembered
from forkpoint.patterns.functions import PatternProcessFunction, TimedOutPartialMatchHandler
from forkpoint.patterns.keeping import KeptEvents, event_times_descriptor
from forkpoint.patterns.matching import Match, Matcher, Runs, Truth
from forkpoint.patterns.pattern import Pattern
from forkpoint.patterns.stored import (
    PARTIAL_MATCHES,
    RUNS,
    Earlier,
    RunsCodec,
    events_descriptor,
    events_in,
    remembered_descriptor,
    runs_descriptor,
    stored_paths,
)
from forkpoint.runtime.event_time.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimerQueue, timers_until, to_flink_ms
from forkpoint.runtime.event_time.watermarks import MAX_MS
from forkpoint.runtime.exchange.batch import OBJECT_ROWS, Batch, Longs, empty_batch
from forkpoint.runtime.exchange.grouping import Groups, group_by_key
from forkpoint.runtime.operators.base import NOT_USERS, Context, Epoch, KeyedOperator, Outputs, TaskInfo, user_error
from forkpoint.runtime.operators.emission import Collector
from forkpoint.runtime.operators.event_time_sort import EventTimeSort, EventTimeSortSpec
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.operators.keyed_process import firing_rank
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.state import decode_state_key, decode_timer_key, sid_ranges, state_key, timer_key
from forkpoint.types import TypeInformation

Comparator = Callable[[Any, Any], int]
Bools = npt.NDArray[np.bool_]

log = logging.getLogger("forkpoint")
MANY = 10_000
"""From this number of partial matches of a key on, an operator says so: each event is held against all of them."""
_MANY = (
    "operator %r: key %r has %d partial matches, against each of which an event is held; a repeated stage that is greedy() or "
    "consecutive() has fewer, and within() bounds them"
)


@dataclass(frozen=True)
class PatternSpec(KeyedSpec):
    """``fn`` receives the matches. ``comparator`` orders events of one time. ``late_tag``: for events behind the watermark; in
    processing time (not ``event_time``) there are none. ``time_column``: of event time, if that is not the timestamp.
    ``query``: the definition of a query's state. ``keep_ms``: how long all events are kept; 0: only those of partial matches.
    ``numbered``: the matches of each key are counted. ``earlier``: fields that show those of earlier rows of the key."""

    kind = "pattern"

    pattern: Pattern
    fn: PatternProcessFunction[Any, Any]
    element_type: TypeInformation
    comparator: Comparator | None = None
    late_tag: OutputTag[Any] | None = None
    event_time: bool = True
    time_column: str = ""
    query: Mapping[str, Any] | None = None
    keep_ms: int = 0
    numbered: bool = False
    earlier: tuple[Earlier, ...] = ()

    @property
    def definition(self) -> Mapping[str, Any]:
        """What the saved state depends on."""
        return definition_of(self.pattern, self.keep_ms) if self.query is None else self.query

    def states(self) -> list[DeclaredState]:
        runs, events = runs_descriptor(self.definition), events_descriptor(self.element_type, self.query)
        found = [DeclaredState.of(runs), DeclaredState.of(events)]
        found += [DeclaredState.of(event_times_descriptor(self.definition))] if self.keep_ms else []
        found += [DeclaredState.of(self.remembered)] if self.remembers else []
        if not self.event_time:
            return [*found, DeclaredState(PROCESSING_TIMERS, "timers-processing", None)]
        return [*found, *self.sorting.states()]

    @property
    def remembers(self) -> bool:
        return self.numbered or bool(self.earlier)

    @property
    def remembered(self) -> ValueStateDescriptor[Any]:
        return remembered_descriptor(self.definition, self.element_type, self.numbered, self.earlier)

    @property
    def sorting(self) -> EventTimeSortSpec:
        return EventTimeSortSpec(self.element_type, self.late_tag, self.query)

    def instance(self, info: TaskInfo, state: ManagedState) -> PatternMatching:
        return PatternMatching(info, state.keyed, self)


class PatternMatching(KeyedOperator):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: PatternSpec) -> None:
        super().__init__(info, backend)
        automaton = compiled(spec.pattern)
        self._matcher = Matcher(automaton, spec.pattern.skip, self._uid)
        self._codec = RunsCodec(automaton)
        self._time_column = spec.time_column
        self._compare = None if spec.comparator is None else cmp_to_key(spec.comparator)
        self._collector = Collector(info.operator)
        self._fn = spec.fn
        self._handler = spec.fn if isinstance(spec.fn, TimedOutPartialMatchHandler) else None
        self._functions = [spec.fn, *(fn for atom in automaton.atoms if (fn := atom.function) is not None)]
        for fn in self._functions:
            fn.open(Context(info, backend))
        backend.record("value", PARTIAL_MATCHES, RUNS, definition=spec.definition)
        self._sid = backend.sid(PARTIAL_MATCHES)
        known = info.known_states.get(self._sid)
        changed = known is not None and spec.query is None and known.definition != spec.definition
        self._changed = Changed.of(known.definition, spec.definition, self._matcher) if changed and known is not None else None
        self._converts = False
        self._had_kept = known is not None and known.definition is not None and KEEP in known.definition
        self._keeping = KeptEvents(backend, spec.keep_ms, spec.definition) if spec.keep_ms else None
        self._events = KeyEvents(backend, events_descriptor(spec.element_type, spec.query))
        self._asked = Asked(self._events)
        self._remembered = Remembered(backend, spec.remembered, spec.numbered, spec.earlier) if spec.remembers else None
        self._shows_earlier = bool(spec.earlier)
        self._element_type = spec.element_type
        self._sort = EventTimeSort(info, backend, spec.sorting) if spec.event_time else None
        if spec.event_time:
            self._timers = backend.sid(EVENT_TIMERS)
        else:
            self._queue = TimerQueue(backend, PROCESSING_TIMERS, "timers-processing", None)
            self._timers = self._queue.sid
        self._rank = firing_rank(info.operator.stage, event=spec.event_time)
        self._next_timer: int | None = None
        self._many = MANY
        self._set: list[int] = []
        self._log = ChangeLog()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        self._log, self._set = ChangeLog(), []
        self._collector.begin(epoch)
        if self._time_column:
            inputs = [inputs[0].slice(0, inputs[0].size)]
            inputs[0].stamp(None, self._time_column)
        if self._sort is not None:
            (events, late), now_ms = self._sort.passed(inputs[0], epoch), to_flink_ms(epoch.window.end)
            due: Sequence[bytes] = self._sort.due_keys
        else:
            events, late = inputs[0], Outputs(empty_batch(None))
            now_ms = MAX_MS if epoch.fires_all else epoch.processing_time_ms
            fired = timers_until(self._backend, self._queue.sid, now_ms)
            self._log.delete(fired)
            due = [decode_timer_key(name).key for name in fired]
        self._converts = self._changed is not None and epoch.restored
        if self._converts:
            due = [*due, *self._stored_keys()]
        groups = self._begin(events, due, epoch)
        self._asked.processing_time_ms = epoch.processing_time_ms
        emission = Emission(self._collector, self._events, epoch.processing_time_ms)
        before_ms = to_flink_ms(epoch.window.before) if self._sort is not None else now_ms
        for key, stored, of_key in self._to_match(events, groups, epoch):
            self._match(key, stored, of_key, before_ms, now_ms, emission)
        if self._sort is None:
            self._next_timer = min(
                (at for at in (self._queue.earliest_after(now_ms), *self._set) if at is not None), default=None
            )
        ahead = None if self._sort is not None else epoch.window.before
        found = self._collector.outputs(emission.batch(self._backend, self._rank, self._type, ahead))
        return Outputs(found.main, found.sides | late.sides, late.late_records_dropped, found.mutable)

    def _begin(self, batch: Batch, due: Sequence[bytes], epoch: Epoch) -> Groups:
        """Group the events by key. ``due``: keys with a timer that fires in this epoch, which may have none."""
        groups, of = group_by_key(batch, self._key), self._backend.key_type
        known = set(map(of.encode, groups.keys)) if due else set()
        others = [of.decode(key) for key in dict.fromkeys(due) if key not in known]
        self._backend.begin(groups.keys + others, epoch.processing_time_ms, lambda: epoch.window.start)
        self._events.begin()
        if self._keeping is not None:
            self._keeping.begin()
        if self._remembered is not None:
            self._remembered.begin()
        return groups

    def _to_match(self, batch: Batch, groups: Groups, epoch: Epoch) -> Iterator[tuple[int, bytes | None, Events]]:
        """Keys with partial matches, or with an event that begins one: index, stored partial matches, and events in order."""
        stored = self._backend.store.get_many(self._backend.prefixes(self._sid))
        waits = np.fromiter((raw is not None for raw in stored), bool, len(stored))
        waits[: len(groups.keys)] |= self._shows_earlier  # every row may be shown by later ones
        stamps = batch.stamps if self._sort is not None else np.full(batch.size, epoch.processing_time_ms)
        wanted = waits.copy()
        if self._keeping is not None:
            wanted[: len(groups.keys)] = True
        others = np.flatnonzero(~wanted[: len(groups.keys)])
        for keys, rows in _blocks(groups, others):
            starts = _starts(groups, keys)
            begin = self._begin_matches(batch, rows, stamps[rows], partial(_key_at, groups.keys, keys, starts))
            wanted[keys] = np.logical_or.reduceat(begin, starts)
        for keys, rows in _blocks(groups, np.flatnonzero(wanted[: len(groups.keys)])):
            elements, times = batch.objects(rows), stamps[rows].tolist()
            bounds = [*_starts(groups, keys).tolist(), len(rows)]
            found = []
            for key, start, stop in zip(keys.tolist(), bounds, bounds[1:], strict=False):
                events = list(zip(times[start:stop], elements[start:stop], range(start, stop), strict=True))
                found.append((key, events if self._compare is None else self._ties_sorted(events, groups.keys[key])))
            table = partial(_table, batch, rows)
            if self._shows_earlier and self._remembered is not None:
                found = [(key, self._remembered.filled(key, events)) for key, events in found]
                for _, element, row in (event for _, events in found for event in events):
                    elements[row] = element
                table = partial(self._table_of, elements)
            self._asked.begin(self._over_columns(table))
            yield from ((key, stored[key], events) for key, events in found)
        for key in np.flatnonzero(wanted[len(groups.keys) :]).tolist():
            yield len(groups.keys) + key, stored[len(groups.keys) + key], []

    def _begin_matches(self, batch: Batch, rows: Longs, times: Longs, key: Callable[[int], Any]) -> Bools:
        """Which of these elements begin a match. ``key``: of one, by its index."""
        atom, found = self._matcher.first_condition, list[bool]()
        if atom is not None and atom.columns is not None:
            return _holds(atom, _table(batch, rows))
        elements = batch.objects(rows)
        with self._user_code(lambda: elements[len(found)], lambda: key(len(found))):
            if atom is not None:
                found.extend(map(bool, map(atom.accepts, elements)))
            else:
                self._asked.begin(self._over_columns(partial(_table, batch, rows)))
                for row, (time_ms, element) in enumerate(zip(times.tolist(), elements, strict=True)):
                    self._asked.about(element, time_ms, row)
                    found.append(self._matcher.begins(self._asked))
        return np.array(found, bool)

    def _over_columns(self, table: Callable[[], pa.RecordBatch]) -> dict[Atom, list[bool]]:
        """The answers of conditions over columns. ``table``: makes the columns, if there are any."""
        atoms = [atom for atom in self._matcher.automaton.atoms if atom.columns is not None]
        columns = table() if atoms else None
        return {atom: _holds(atom, columns).tolist() for atom in atoms}

    def _table_of(self, elements: list[Any]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(self._element_type.to_columns(elements), schema=self._element_type.arrow_schema)

    def _ties_sorted(self, events: Events, key: Any) -> Events:
        compare = self._compare
        assert compare is not None
        times = groupby(events, itemgetter(0))
        with self._user_code(lambda: [event for _, event, _ in events], lambda: key):
            return [event for _, tied in times for event in sorted(tied, key=lambda event: compare(event[1]))]

    # -- one key

    def _match(self, key: int, stored: bytes | None, events: Events, before_ms: int, now_ms: int, emission: Emission) -> None:
        """Feed a key's events to its partial matches, end those whose time is over, and store the others. ``before_ms``: until
        when another pattern has been matched."""
        matcher, asked = self._matcher, self._asked
        self._backend.enter(key)
        self._events.enter(key)
        if self._keeping is not None:
            self._keeping.enter(key)
        emission.number = 0 if self._remembered is None else self._remembered.matches(key)
        of_other = stored if self._converts else None  # what another pattern has saved
        before = Runs() if stored is None or self._converts else self._codec.decode(stored)
        runs = before.copy() if of_other is None else self._converted(of_other, before_ms)
        timeout = matcher.next_timeout(before)
        new: dict[int, int] = {}
        element: Any = None
        with self._user_code(lambda: element, lambda: self._backend.current_key):
            for time_ms, element, row in events:
                self._end(runs, key, time_ms, emission)
                asked.about(element, time_ms, row)
                new[runs.next_event] = time_ms
                self._events.add(runs.next_event, element)
                found = matcher.accept(runs, time_ms, asked)
                if len(runs.partial) > self._many:
                    self._many *= 10
                    log.warning(_MANY, self._uid, self._backend.current_key, len(runs.partial))
                for match in found:
                    self._emit(match, key, time_ms, emission)
            self._end(runs, key, now_ms, emission)
        held = [run.step for run in before.all] if of_other is None else stored_paths(of_other)[0]
        if of_other is not None or self._keeping is not None or not runs.same_as(before):
            self._store(key, events_in(held), runs, timeout, new, now_ms)
        if self._remembered is not None:
            self._remembered.store(key, emission.number, self._log)
        self._backend.leave()

    def _stored_keys(self) -> list[bytes]:
        """All keys with partial matches."""
        ranges, store = sid_ranges(*self._backend.groups, self._sid), self._backend.store
        return [decode_state_key(name).key for start, stop in store.occupied(ranges) for name, _ in store.scan(start, stop)]

    def _converted(self, stored: bytes, until_ms: int) -> Runs:
        """The partial matches of the current key, which another pattern has saved, and matched until then."""
        assert self._changed is not None
        kept = dict(self._keeping.stored()) if self._keeping is not None and self._had_kept else {}
        return self._changed.runs(stored, kept, until_ms, self._answers_about)

    def _answers_about(self, number: int, at_ms: int) -> Truth:
        """What conditions say of an event of the current key."""
        (element,) = self._events.elements([number])
        asked = Asked(self._events)
        asked.begin(self._over_columns(partial(self._table_of, [element])))
        asked.about(element, at_ms, 0)
        return asked

    def _end(self, runs: Runs, key: int, until_ms: int, emission: Emission) -> None:
        """End the partial matches whose time is over by then, each at its own time."""
        while (at_ms := self._matcher.next_timeout(runs)) is not None and at_ms <= until_ms:
            matches, timed_out = self._matcher.advance(runs, at_ms)
            for match in timed_out if self._handler is not None else ():
                assert self._handler is not None
                emission.add(self._handler.process_timed_out_match(emission.matched(match, at_ms), emission), key)
            for match in matches:
                self._emit(match, key, at_ms, emission)

    def _emit(self, match: Match, key: int, at_ms: int, emission: Emission) -> None:
        emission.number += 1
        emission.add(self._fn.process_match(emission.matched(match, at_ms), emission), key)

    def _store(self, key: int, held: dict[int, int], runs: Runs, timeout: int | None, new: dict[int, int], now_ms: int) -> None:
        """Store what has become of a key's partial matches. ``held``: the events that they had, and ``new`` ones, as times by
        number. ``timeout``: of the first of the partial matches."""
        needed, in_state = set(events_in(run.step for run in runs.all)), set(held)
        kept_until = None
        if self._keeping is not None:
            kept = {number: at_ms for number, at_ms in (held | new).items() if self._keeping.keeps(at_ms, now_ms)}
            begins = self._converts and not self._had_kept
            fresh = kept if begins else {number: at_ms for number, at_ms in kept.items() if number in new}
            old, kept_until = self._keeping.store(fresh, now_ms, self._log)
            needed, in_state = needed.union(kept), in_state.union(old)
            self._set_timer(key, kept_until)
        elif self._converts and self._had_kept:
            in_state = set(self._events.stored())
        is_waiting = kept_until is not None or not runs.is_empty
        self._log.keys.append(state_key(self._backend.key_groups[key], self._sid, self._backend.key_bytes[key]))
        self._log.values.append(self._codec.encode(runs) if is_waiting else None)
        self._events.store(in_state, needed, self._log)
        next_ms = self._matcher.next_timeout(runs)
        if next_ms != timeout:
            self._set_timer(key, next_ms)

    def _set_timer(self, key: int, at_ms: int | None) -> None:
        if at_ms is not None:
            self._set.append(at_ms)
            self._log.keys.append(timer_key(self._backend.key_groups[key], self._timers, at_ms, self._backend.key_bytes[key]))
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


def _blocks(groups: Groups, keys: Longs) -> Iterator[tuple[Longs, Longs]]:
    """These keys in blocks of few elements, and the rows of their elements."""
    counts = groups.starts[keys + 1] - groups.starts[keys]
    block = np.cumsum(counts) // OBJECT_ROWS
    for of_block in np.split(keys, np.flatnonzero(np.diff(block)) + 1) if len(keys) else ():
        rows = [np.arange(groups.starts[key], groups.starts[key + 1]) for key in of_block.tolist()]
        yield of_block, groups.order[np.concatenate(rows)]


def _starts(groups: Groups, keys: Longs) -> Longs:
    """Where the elements of each key begin among those of all of them."""
    counts = groups.starts[keys + 1] - groups.starts[keys]
    return np.asarray(np.cumsum(counts) - counts)


def _table(batch: Batch, rows: Longs) -> pa.RecordBatch:
    if batch.table is not None:
        return batch.table.take(pa.array(rows))
    assert batch.type is not None
    return pa.RecordBatch.from_arrays(batch.type.to_columns(batch.objects(rows)), schema=batch.type.arrow_schema)


def _holds(atom: Atom, table: pa.RecordBatch) -> Bools:
    assert atom.columns is not None
    return atom.columns.holds(table)  # type: ignore[union-attr]


def _key_at(keys: Sequence[Any], of_block: Longs, starts: Longs, at: int) -> Any:
    """The key of an element of a block, by its index. ``starts``: where those of each key begin."""
    return keys[int(of_block[bisect_right(starts.tolist(), at) - 1])]
