"""What surrounds the automaton of one key: its events by number, what conditions and functions ask, and what functions emit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from forkpoint.functions import MapStateDescriptor, ValueStateDescriptor
from forkpoint.patterns.conditions import Atom, IterativeCondition
from forkpoint.patterns.functions import Matched, PatternProcessFunction
from forkpoint.patterns.matching import Match, Run, Step, steps_of
from forkpoint.patterns.stored import Earlier, sources_of
from forkpoint.runtime.event_time.watermarks import timer_position, timer_positions
from forkpoint.runtime.exchange.batch import Batch, Coordinates, DerivedBatch
from forkpoint.runtime.operators.emission import Collector
from forkpoint.runtime.operators.keyed_process import order_of
from forkpoint.runtime.state.guard import Guard
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.state import prefix_stop
from forkpoint.types import TypeInformation, Types

_NUMBER = Types.LONG()
Events = list[tuple[int, Any, int]]
"""Elements with their times in ms, and their places among the elements that are asked at once."""


class KeyEvents:
    """The events of the current key by number: those of this epoch, and those in state that partial matches point at."""

    def __init__(self, backend: KeyedBackend, state: MapStateDescriptor[int, Any]) -> None:
        backend.record("map", state.name, state.value_type, _NUMBER, definition=state.definition)
        self._backend, self._sid = backend, backend.sid(state.name)
        self._guard: Guard = backend.guard(state.name, state.value_type)
        self._prefixes: Sequence[bytes] = ()
        self._prefix = b""
        self._kept: dict[int, Any] = {}
        self._new: set[int] = set()

    def begin(self) -> None:
        self._prefixes = self._backend.prefixes(self._sid)

    def enter(self, key: int) -> None:
        self._prefix, self._kept, self._new = self._prefixes[key], {}, set()

    def add(self, number: int, element: Any) -> None:
        self._kept[number] = self._guard.keep(element)
        self._new.add(number)

    def elements(self, numbers: Sequence[int]) -> list[Any]:
        """The elements, as copies if a function could change them."""
        missing = [number for number in numbers if number not in self._kept]
        raw = self._backend.store.get_many([self._name(number) for number in missing]) if missing else ()
        for number, data in zip(missing, raw, strict=True):
            assert data is not None, f"event {number} of key {self._backend.current_key!r} is not in state"
            self._kept[number] = self._guard.decoded(data)
        return [self._guard.give(self._kept[number]) for number in numbers]

    def store(self, held: AbstractSet[int], needed: AbstractSet[int], log: ChangeLog) -> None:
        """Keep the events that are ``needed``, of those in state (``held``) and of this epoch."""
        for number in sorted(needed - held):
            log.keys.append(self._name(number))
            log.values.append(self._guard.encoded(self._kept[number]))
        log.delete([self._name(number) for number in sorted(held - needed)])

    def stored(self) -> set[int]:
        """The numbers of all events of the current key that are in state."""
        found = self._backend.store.scan(self._prefix, prefix_stop(self._prefix))
        return {_NUMBER.decode(name[len(self._prefix) :]) for name, _ in found}

    def _name(self, number: int) -> bytes:
        return self._prefix + _NUMBER.encode(number)


class Remembered:
    """What is known of each key also when it has no partial matches: its number of matches if it is ``numbered``, and of its last
    rows the fields that later ones show (``earlier``)."""

    def __init__(
        self, backend: KeyedBackend, state: ValueStateDescriptor[Any], numbered: bool, earlier: tuple[Earlier, ...]
    ) -> None:
        backend.record("value", state.name, state.value_type, definition=state.definition)
        self._backend, self._sid, self._type = backend, backend.sid(state.name), state.value_type
        self._numbered, self._earlier, self._sources = numbered, earlier, sources_of(earlier)
        self._names: Sequence[bytes] = ()
        self._stored: Sequence[bytes | None] = ()
        self._rows: dict[int, list[tuple[Any, ...]]] = {}  # of keys with events in this epoch

    def begin(self) -> None:
        self._names, self._rows = self._backend.prefixes(self._sid), {}
        self._stored = self._backend.store.get_many(self._names)

    def _known(self, key: int) -> tuple[int, list[tuple[Any, ...]]]:
        data = self._stored[key]
        known = () if data is None else self._type.decode(data)
        return known[0] if known and self._numbered else 0, known[-1] if known and self._earlier else []

    def matches(self, key: int) -> int:
        """How many the key had so far."""
        return self._known(key)[0]

    def filled(self, key: int, events: Events) -> Events:
        """The next events of a key, with what they show of earlier ones."""
        rows, found = list(self._known(key)[1]), []
        for time_ms, element, row in events:
            values = list(element)
            for at, of, before in self._earlier:
                values[at] = rows[-before][self._sources.index(of)] if before <= len(rows) else None
            rows.append(tuple(element[at] for at in self._sources))
            found.append((time_ms, element.with_values(values), row))
        self._rows[key] = rows[-max(each.before for each in self._earlier) :]
        return found

    def store(self, key: int, matches: int, log: ChangeLog) -> None:
        known = self._known(key)
        rows = self._rows.get(key, known[1])
        if (matches, rows) != known:
            log.keys.append(self._names[key])
            log.values.append(self._type.encode(((matches,) * self._numbered) + ((rows,) if self._earlier else ())))


class Asked(IterativeCondition.Context):
    """Answers which conditions hold for the current event; each that depends on the event alone is asked once."""

    def __init__(self, events: KeyEvents) -> None:
        self._events = events
        self._answers: dict[Atom, bool] = {}
        self._element: Any = None
        self._time_ms = 0
        self._run: Run | None = None
        self._columns: Mapping[Atom, list[bool]] = {}
        self._row = 0
        self.processing_time_ms = 0

    def begin(self, columns: Mapping[Atom, list[bool]]) -> None:
        """Start with elements for which conditions over columns have these answers."""
        self._columns = columns

    def about(self, element: Any, time_ms: int, row: int) -> None:
        """Start with the next element. ``row``: its place in the answers of conditions over columns."""
        self._element, self._time_ms, self._row, self._answers = element, time_ms, row, {}

    def __call__(self, atom: Atom, run: Run | None) -> bool:
        if atom.iterative:
            self._run = run
            return bool(atom.accepts(self._element, self))
        if atom.columns is not None:
            return self._columns[atom][self._row]
        answer = self._answers.get(atom)
        if answer is None:
            answer = self._answers[atom] = bool(atom.accepts(self._element))
        return answer

    def get_events_for_pattern(self, name: str) -> list[Any]:
        steps = () if self._run is None else steps_of(self._run)
        return self._events.elements([step.event for step in steps if step.stage == name])

    def steps(self) -> Iterator[Step]:
        """What the partial match has accepted so far, the last first."""
        step = None if self._run is None else self._run.step
        while step is not None:
            yield step
            step = step.before

    def element(self, step: Step) -> Any:
        """The element of one of its steps."""
        return self._events.elements((step.event,))[0]

    def matched(self) -> list[tuple[str, Any]]:
        """The elements that the partial match has accepted so far, in order, each with its stage."""
        steps = () if self._run is None else steps_of(self._run)
        elements = self._events.elements([step.event for step in steps])
        return [(step.stage, element) for step, element in zip(steps, elements, strict=True)]

    def timestamp(self) -> int:
        return self._time_ms

    def current_processing_time(self) -> int:
        return self.processing_time_ms


class Emission(PatternProcessFunction.Context):
    """What the function emits in an epoch, with its times and keys; also the function's context."""

    def __init__(self, collector: Collector, events: KeyEvents, processing_time_ms: int) -> None:
        self.values: list[Any] = []
        self._extend = collector.into(self.values)
        self._events = events
        self._times: list[int] = []
        self._keys: list[int] = []
        self._match: Match = {}
        self._time_ms = 0
        self.number = 0  # of the match, among those of its key, if they are counted
        self._processing_time_ms = processing_time_ms

    def matched(self, match: Match, time_ms: int) -> Matched:
        """The elements of a match, which the function is called with at this time."""
        self._time_ms, self._match = time_ms, match
        return {stage: self._events.elements(numbers) for stage, numbers in match.items()}

    def rows(self) -> list[tuple[str, Any]]:
        """The elements of the match in order, each with its stage."""
        numbers = sorted((number, stage) for stage, numbers in self._match.items() for number in numbers)
        elements = self._events.elements([number for number, _ in numbers])
        return [(stage, element) for (_, stage), element in zip(numbers, elements, strict=True)]

    def add(self, results: Iterable[Any] | None, key: int) -> None:
        if results is None:
            return
        self._extend(results)
        more = len(self.values) - len(self._times)
        self._times += [self._time_ms] * more
        self._keys += [key] * more

    def batch(self, backend: KeyedBackend, rank: int, type: TypeInformation | None, before_ms: int | None) -> Batch:
        """All outputs. ``before_ms``: the watermark ahead of all of them; None in event time, where each has its own place."""
        ties = np.fromiter(map(order_of, backend.key_bytes), np.int64, len(backend.key_bytes))[np.array(self._keys, np.int64)]
        times = np.array(self._times, np.int64)

        def coordinates() -> Coordinates:
            if before_ms is not None:
                return timer_position(before_ms) + 1, rank, ties, None
            return timer_positions(times), rank, ties, times

        return DerivedBatch(len(self.values), coordinates, values=self.values, type=type)

    def timestamp(self) -> int:
        return self._time_ms

    def current_processing_time(self) -> int:
        return self._processing_time_ms
