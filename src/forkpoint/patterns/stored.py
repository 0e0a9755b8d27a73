"""Partial matches in state: typed rows that point at events, by number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from forkpoint.functions import MapStateDescriptor, ValueStateDescriptor
from forkpoint.patterns.automaton import Automaton
from forkpoint.patterns.matching import Run, Runs, Step
from forkpoint.types import TypeInformation, Types
from forkpoint.types.information import Field
from forkpoint.types.kinds.records import RecordType, classless


class Earlier(NamedTuple):
    """A field of rows that shows another one, ``of`` the row that came this number of rows ``before``; NULL if there is none."""

    at: int
    of: int
    before: int


PARTIAL_MATCHES, EVENTS, REMEMBERED = "partial_matches", "events", "remembered"

_STEP = classless(
    "namedtuple",
    "Step",
    (
        Field("stage", Types.STRING()),
        Field("event", Types.LONG()),
        Field("at_ms", Types.LONG()),
        Field("before", Types.LONG()),
    ),
)
_RUN = classless("namedtuple", "PartialMatch", (Field("waits_in", Types.STRING()), Field("last_step", Types.LONG())))
RUNS = classless(
    "namedtuple",
    "PartialMatches",
    (
        Field("partial", Types.LIST(_RUN)),
        Field("completed", Types.LIST(_RUN)),
        Field("steps", Types.LIST(_STEP)),
        Field("next_event", Types.LONG()),
    ),
)
"""``last_step``: an index in ``steps``, each of which has the index of the one ``before`` it, or -1."""


def runs_descriptor(definition: Any) -> ValueStateDescriptor[Any]:
    found = ValueStateDescriptor(PARTIAL_MATCHES, RUNS)
    found.definition = definition
    return found


def remembered_descriptor(
    definition: Any, element_type: TypeInformation, numbered: bool, earlier: tuple[Earlier, ...]
) -> ValueStateDescriptor[Any]:
    """What is known of a key also when it has no partial matches: the number of its ``matches`` so far, and of its last ``rows``
    the fields that later ones show."""
    fields = [Field("matches", Types.LONG())] if numbered else []
    if earlier:
        assert isinstance(element_type, RecordType)
        shown = tuple(element_type.members[at] for at in sources_of(earlier))
        fields.append(Field("rows", Types.LIST(RecordType("tuple", "Earlier", shown))))
    found = ValueStateDescriptor(REMEMBERED, classless("namedtuple", "Remembered", tuple(fields)))
    found.definition = definition
    return found


def sources_of(earlier: tuple[Earlier, ...]) -> list[int]:
    return sorted({each.of for each in earlier})


def events_descriptor(of: TypeInformation, definition: Any = None) -> MapStateDescriptor[int, Any]:
    """The events of partial matches, by number."""
    found: MapStateDescriptor[int, Any] = MapStateDescriptor(EVENTS, Types.LONG(), of)
    found.value_type, found.definition = of, definition
    return found


class RunsCodec:
    """Partial matches as bytes, and back. ``renamed``: the saved names of states, by those that they have now. ``stages``: the
    names of stages now, by the saved ones."""

    def __init__(
        self, automaton: Automaton, renamed: Mapping[str, str] | None = None, stages: Mapping[str, str] | None = None
    ) -> None:
        self._names = [state.name for state in automaton.states]
        renamed, self._stages = renamed or {}, stages or {}
        self._numbers = {renamed.get(name, name): number for number, name in enumerate(self._names)}
        self._encode, self._decode = RUNS.encode, RUNS.decode

    def encode(self, runs: Runs) -> bytes:
        steps: list[tuple[str, int, int, int]] = []
        at: dict[int, int] = {}
        rows = [
            [(self._names[run.state], _index(run.step, steps, at)) for run in each] for each in (runs.partial, runs.completed)
        ]
        return self._encode((*rows, steps, runs.next_event))

    def decode(self, data: bytes) -> Runs:
        partial, completed, rows, next_event = self._decode(data)
        if self._stages:
            rows = [(self._stages.get(stage, stage), *rest) for stage, *rest in rows]
        steps, firsts = _steps(rows)
        found = [
            [Run(self._numbers[name], steps[last], firsts[last].event, firsts[last].at_ms) for name, last in each]
            for each in (partial, completed)
        ]
        return Runs(next_event, *found)


def stored_paths(data: bytes) -> tuple[list[Step], int]:
    """The last steps of stored partial matches, whatever states they wait in, and the number of the next event."""
    partial, completed, rows, next_event = RUNS.decode(data)
    steps, _ = _steps(rows)
    return [steps[last] for _, last in (*partial, *completed)], next_event


def _steps(rows: Iterable[tuple[str, int, int, int]]) -> tuple[list[Step], list[Step]]:
    """Stored steps, and the first step of the match that each is part of."""
    steps: list[Step] = []
    firsts: list[Step] = []
    for stage, event, at_ms, before in rows:
        steps.append(Step(stage, event, at_ms, None if before < 0 else steps[before]))
        firsts.append(steps[-1] if before < 0 else firsts[before])
    return steps, firsts


def _index(step: Step, steps: list[tuple[str, int, int, int]], at: dict[int, int]) -> int:
    """The index of a step in ``steps``, to which it and those before it are added if they are not there. ``at``: by identity."""
    missing: list[Step] = []
    here: Step | None = step
    while here is not None and id(here) not in at:
        missing.append(here)
        here = here.before
    before = -1 if here is None else at[id(here)]
    for each in reversed(missing):
        steps.append((each.stage, each.event, each.at_ms, before))
        before = at[id(each)] = len(steps) - 1
    return before


def events_in(last_steps: Iterable[Step]) -> dict[int, int]:
    """The events that partial matches point at: times by number."""
    found: dict[int, int] = {}
    seen: set[int] = set()
    for last in last_steps:
        step: Step | None = last
        while step is not None and id(step) not in seen:
            seen.add(id(step))
            found[step.event] = step.at_ms
            step = step.before
    return found
