"""Changed patterns: what they are compared by, and what becomes of partial matches that were saved by another pattern.

If only names of stages differ, partial matches wait under the new names. Otherwise the events that they have are matched again:
those that no longer fit vanish, and others may appear. Events that were passed over are not in state: in their places comes one
that no condition accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from forkpoint.patterns.conditions import Always, Atom, Condition, Either, Not
from forkpoint.patterns.matching import Matcher, Run, Runs, Truth
from forkpoint.patterns.pattern import Pattern, Stage
from forkpoint.patterns.stored import RunsCodec, events_in, stored_paths

_AGAIN = "its pattern has changed: its partial matches are matched again, from the events that they have"


def definition_of(pattern: Pattern) -> dict[str, Any]:
    """What a pattern's saved state depends on, as JSON. Functions in Python are not looked into, as elsewhere."""
    skip = [pattern.skip.kind, pattern.skip.stage] if pattern.skip.stage else [pattern.skip.kind]
    return {"pattern": [_stage(stage) for stage in pattern.stages], "skip": skip}


def _stage(stage: Stage) -> dict[str, Any]:
    times = stage.times
    found: dict[str, Any] = {
        "name": stage.name,
        "after": stage.contiguity.value,
        "where": _text(stage.condition),
        "until": None if stage.until is None else _text(stage.until),
        "times": None if times is None else [times.low, times.high, times.inner.value, times.greedy, times.within_ms],
        "optional": stage.optional or None,
        "within_ms": stage.within_ms,
        "total_ms": stage.total_ms,
        "group": None if stage.group is None else [_stage(each) for each in stage.group.stages],
    }
    return {name: value for name, value in found.items() if value is not None}


def _text(condition: Condition) -> str:
    match condition:
        case Always():
            return ""
        case Atom(columns=columns):
            return "function" if columns is None else str(columns)
        case Not(of):
            return f"NOT ({_text(of)})"
    word = "OR" if isinstance(condition, Either) else "AND"
    return f"({_text(condition.left)}) {word} ({_text(condition.right)})"


def compare(saved: dict[str, Any], wanted: dict[str, Any]) -> str:
    """What becomes of saved partial matches; "" if nothing has changed."""
    if saved == wanted:
        return ""
    renamed = renames(saved, wanted)
    if renamed is None:
        return _AGAIN
    changed = [f"{old!r} is now {new!r}" for new, old in renamed.items() if old != new]
    return f"stage {', '.join(changed)}" if changed else "its partial matches go on"


def renames(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, str] | None:
    """The saved names of stages by their names now, if they differ in names only, or in what is skipped after a match."""
    old, new = _names(saved["pattern"]), _names(wanted["pattern"])
    if len(old) != len(new) or _unnamed(saved["pattern"]) != _unnamed(wanted["pattern"]):
        return None
    return dict(zip(new, old, strict=True))


def _names(stages: list[dict[str, Any]]) -> list[str]:
    return [name for stage in stages for name in (_names(stage["group"]) if "group" in stage else [stage["name"]])]


def _unnamed(stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**stage, "name": "", "group": _unnamed(stage["group"])} if "group" in stage else {**stage, "name": ""}
        for stage in stages
    ]


@dataclass(frozen=True)
class Changed:
    """Converts partial matches that another pattern has saved. ``codec``: if only names differ."""

    matcher: Matcher
    codec: RunsCodec | None

    @staticmethod
    def of(saved: Mapping[str, Any], wanted: Mapping[str, Any], matcher: Matcher) -> Changed:
        names = renames(saved, wanted)
        if names is None:
            return Changed(matcher, None)
        renamed = {
            state.name: names.get(state.stage, state.stage) + state.name.removeprefix(state.stage)
            for state in matcher.automaton.states
        }
        return Changed(matcher, RunsCodec(matcher.automaton, renamed, {old: new for new, old in names.items()}))

    def runs(self, stored: bytes, answers: Callable[[int, int], Truth]) -> Runs:
        """``answers(number, time in ms)``: what conditions say of an event."""
        return self._matched_again(stored, answers) if self.codec is None else self.codec.decode(stored)

    def _matched_again(self, stored: bytes, answers: Callable[[int, int], Truth]) -> Runs:
        last_steps, next_event = stored_paths(stored)
        runs = Runs()
        for number, at_ms in sorted(events_in(last_steps).items()):
            self.matcher.advance(runs, at_ms)
            if runs.next_event < number:
                self.matcher.accept(runs, at_ms, _nothing)
            runs.next_event = number
            self.matcher.accept(runs, at_ms, answers(number, at_ms))
        runs.next_event = next_event
        return runs


def _nothing(_: Atom, __: Run | None) -> bool:
    return False
