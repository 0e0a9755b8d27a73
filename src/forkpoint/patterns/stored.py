"""Partial matches in state: typed rows that point at events, by number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from forkpoint.errors import RestoreRefused
from forkpoint.functions import MapStateDescriptor, ValueStateDescriptor
from forkpoint.patterns.automaton import Automaton
from forkpoint.patterns.matching import Run, Runs, Step
from forkpoint.types import TypeInformation, Types
from forkpoint.types.information import Field
from forkpoint.types.kinds.records import classless

PARTIAL_MATCHES, EVENTS = "partial_matches", "events"

_STEP = classless(
    "namedtuple",
    "Step",
    (Field("stage", Types.STRING()), Field("event", Types.LONG()), Field("before", Types.LONG())),
)
_RUN = classless(
    "namedtuple",
    "PartialMatch",
    (
        Field("waits_in", Types.STRING()),
        Field("step", Types.LONG()),
        Field("first_event", Types.LONG()),
        Field("first_ms", Types.LONG()),
        Field("last_ms", Types.LONG()),
    ),
)
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
"""``step``: the index of a partial match's last step in ``steps``, each with the index of the one ``before`` it, or -1."""


def runs_descriptor() -> ValueStateDescriptor[Any]:
    return ValueStateDescriptor(PARTIAL_MATCHES, RUNS)


def events_descriptor(of: TypeInformation) -> MapStateDescriptor[int, Any]:
    """The events of partial matches, by number."""
    found: MapStateDescriptor[int, Any] = MapStateDescriptor(EVENTS, Types.LONG(), of)
    found.value_type = of
    return found


class RunsCodec:
    """``uid``: of the operator, for messages."""

    def __init__(self, automaton: Automaton, uid: str) -> None:
        self._names = [state.name for state in automaton.states]
        self._numbers: Mapping[str, int] = {name: number for number, name in enumerate(self._names)}
        self._uid = uid
        self._encode, self._decode = RUNS.encode, RUNS.decode

    def encode(self, runs: Runs) -> bytes:
        steps: list[tuple[str, int, int]] = []
        at: dict[int, int] = {}
        rows = [self._rows(group, steps, at) for group in (runs.partial, runs.completed)]
        return self._encode((*rows, steps, runs.next_event))

    def _rows(self, runs: Iterable[Run], steps: list[tuple[str, int, int]], at: dict[int, int]) -> list[tuple[Any, ...]]:
        return [(self._names[r.state], _index(r.step, steps, at), r.start, r.start_ms, r.last_ms) for r in runs]

    def decode(self, data: bytes) -> Runs:
        partial, completed, rows, next_event = self._decode(data)
        steps: list[Step] = []
        for stage, event, before in rows:
            steps.append(Step(stage, event, None if before < 0 else steps[before]))
        return Runs(next_event, self._runs(partial, steps), self._runs(completed, steps))

    def _runs(self, rows: Iterable[tuple[str, int, int, int, int]], steps: list[Step]) -> list[Run]:
        try:
            return [Run(self._numbers[name], steps[step], start, first, last) for name, step, start, first, last in rows]
        except KeyError as unknown:
            raise RestoreRefused(
                f"operator {self._uid!r}: a saved partial match waits in state {unknown.args[0]!r}, which the pattern does not "
                "have any more; restore with the saved pattern, or give the operator another uid to start without partial matches"
            ) from None


def _index(step: Step, steps: list[tuple[str, int, int]], at: dict[int, int]) -> int:
    """The index of a step in ``steps``, to which it and those before it are added if they are not there. ``at``: by identity."""
    missing: list[Step] = []
    here: Step | None = step
    while here is not None and id(here) not in at:
        missing.append(here)
        here = here.before
    before = -1 if here is None else at[id(here)]
    for each in reversed(missing):
        steps.append((each.stage, each.event, before))
        before = at[id(each)] = len(steps) - 1
    return before


def events_in(runs: Iterable[Run]) -> set[int]:
    """The numbers of the events that partial matches point at."""
    found: set[int] = set()
    seen: set[int] = set()
    for run in runs:
        step: Step | None = run.step
        while step is not None and id(step) not in seen:
            seen.add(id(step))
            found.add(step.event)
            step = step.before
    return found
