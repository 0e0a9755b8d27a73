"""Changed patterns: what they are compared by, and what becomes of partial matches that were saved by another pattern.

If only names of stages differ, partial matches wait under the new names. Otherwise the events that they have are matched again:
those that no longer fit vanish, and others may appear. Events that were passed over are not in state, unless they are kept for
some time: in their places comes one that no condition accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from forkpoint.patterns.conditions import Always, Atom, Condition, Either, Not
from forkpoint.patterns.matching import Matcher, Run, Runs, Truth
from forkpoint.patterns.pattern import Pattern, Stage
from forkpoint.patterns.stored import RunsCodec, events_in, stored_paths
from forkpoint.wording import duration

KEEP = "keep_events_ms"
_AGAIN = "its pattern has changed: its partial matches are matched again, from the events that they have"


def definition_of(pattern: Pattern, keep_ms: int = 0) -> dict[str, Any]:
    """What a pattern's saved state depends on, as JSON. Functions in Python are not looked into, as elsewhere. ``keep_ms``: how
    long all events are kept."""
    skip = [pattern.skip.kind, pattern.skip.stage] if pattern.skip.stage else [pattern.skip.kind]
    found = {"pattern": [_stage(stage) for stage in pattern.stages], "skip": skip}
    return {**found, KEEP: keep_ms} if keep_ms else found


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
    renamed, kept_ms = renames(saved, wanted), saved.get(KEEP)
    if renamed is None:
        return f"{_AGAIN}, and all others of the last {duration(kept_ms)}" if kept_ms and KEEP in wanted else _AGAIN
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

    def runs(self, stored: bytes, kept: Mapping[int, int], until_ms: int, answers: Callable[[int, int], Truth]) -> Runs:
        """``kept``: other events in state, as times by number. With those, nothing is left whose time was over by ``until_ms``.
        ``answers(number, time in ms)``: what conditions say of an event."""
        if self.codec is not None:
            return self.codec.decode(stored)
        runs = self._matched_again(stored, kept, answers)
        if kept:
            self.matcher.advance(runs, until_ms)
        return runs

    def _matched_again(self, stored: bytes, kept: Mapping[int, int], answers: Callable[[int, int], Truth]) -> Runs:
        last_steps, next_event = stored_paths(stored)
        runs = Runs()
        for number, at_ms in sorted({**events_in(last_steps), **kept}.items()):
            self.matcher.advance(runs, at_ms)
            if runs.next_event < number:
                self.matcher.accept(runs, at_ms, _nothing)
            runs.next_event = number
            self.matcher.accept(runs, at_ms, answers(number, at_ms))
        runs.next_event = next_event
        return runs


def _nothing(_: Atom, __: Run | None) -> bool:
    return False
