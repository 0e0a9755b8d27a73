"""What a restore would do to each operator, state and source: decided before anything is touched. Pure.

States are matched by operator uid and state name; whether one fits is decided in ``compatibility``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from forkpoint.checkpoint.manifest import Manifest, SourcePosition
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import RestoreRefused
from forkpoint.savepoint.compatibility import ProgramOperator, Verdict, compare_state
from forkpoint.savepoint.evolution import Migration
from forkpoint.types import Step
from forkpoint.types.evolution import SAME

Outcome = Literal["restored", "migrated", "new", "kept", "dropped", "refused"]
Subject = Literal["operator", "state", "source", "rename"]


@dataclass(frozen=True)
class Saved:
    """All that a restore can bring: states, operators by uid with their names, sources by uid with their kinds.

    ``empty``: the states, by uid and name, that are known to have no entries; of a checkpoint nobody counted them.
    """

    states: tuple[StateInfo, ...]
    operators: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    empty: Collection[tuple[str, str]] = ()

    @staticmethod
    def of(saved: Savepoint | Manifest) -> Saved:
        operators = {o.uid: o.name for o in saved.operators}
        if isinstance(saved, Manifest):
            known = {state.uid: state.uid for state in saved.states}
            return Saved(tuple(saved.states), known | operators, _kinds(saved.sources))
        states = [state for operator in saved.operators for state in operator.states]
        empty = {(state.info.uid, state.info.name) for state in states if not state.entries}
        return Saved(tuple(state.info for state in states), operators, _kinds(saved.sources), empty)


def _kinds(sources: Mapping[str, SourcePosition]) -> dict[str, str]:
    return {uid: position.kind for uid, position in sources.items()}


@dataclass(frozen=True)
class Row:
    """One line of the comparison. ``uid`` is the program's where it has the operator; ``why`` is for people."""

    subject: Subject
    uid: str
    name: str
    outcome: Outcome
    why: str = ""


@dataclass(frozen=True)
class StateMapping:
    """A saved state, and the state of the program that it becomes.

    ``step`` converts its values, ``values`` and ``keys`` are the migrations it goes through. ``rewritten``: whether its
    entries are stored otherwise than they were.
    """

    saved_uid: str
    saved_name: str
    target: StateInfo
    step: Step = SAME
    values: tuple[Migration, ...] = ()
    keys: tuple[Migration, ...] = ()
    rewritten: bool = False


@dataclass(frozen=True)
class RestorePlan:
    """What will be restored. ``uids``: saved uid → uid in the program, for watermarks and positions of operators that
    are there. ``sources``: saved uid → uid in the new manifest, those included that the program no longer has: their
    positions are kept, in case they come back."""

    rows: tuple[Row, ...]
    states: tuple[StateMapping, ...]
    uids: Mapping[str, str]
    sources: Mapping[str, str]

    @property
    def refused(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.outcome == "refused")

    def table(self) -> str:
        """All rows as text."""
        return render(self.rows)


def plan_restore(
    saved: Saved,
    wanted: Sequence[StateInfo],
    operators: Sequence[ProgramOperator],
    *,
    allow_non_restored: bool = False,
    renames: Mapping[str, str] | None = None,
    check_only: bool = False,
) -> RestorePlan:
    """Compare what was saved with a program, by uid and state name. ``renames``: saved uid → uid in the program.

    Raises RestoreRefused with a table of every problem, unless ``check_only``: then the plan has the refused rows.
    """
    planner = _Planner(saved, {(s.uid, s.name): s for s in wanted}, {o.uid: o for o in operators}, allow_non_restored)
    plan = planner.plan(dict(renames or {}))
    if plan.refused and not check_only:
        count = len(plan.refused)
        raise RestoreRefused(
            f"the program and the saved state do not fit together ({count} problem{'s' if count > 1 else ''}):\n"
            f"{render(plan.refused)}"
        )
    return plan


def render(rows: Iterable[Row]) -> str:
    """Rows as aligned text, one a line."""
    cells = [(row.outcome, row.subject, f"{row.uid}/{row.name}" if row.name else row.uid, row.why) for row in rows]
    widths = [max((len(cell[i]) for cell in cells), default=0) for i in range(3)]
    lines = ("  ".join([*(text.ljust(w) for text, w in zip(cell, widths, strict=False)), cell[3]]) for cell in cells)
    return "\n".join(f"  {line.rstrip()}" for line in lines)


@dataclass
class _Planner:
    saved: Saved
    wanted: Mapping[tuple[str, str], StateInfo]
    program: Mapping[str, ProgramOperator]
    allow_non_restored: bool
    rows: list[Row] = field(default_factory=list)
    states: list[StateMapping] = field(default_factory=list)

    def plan(self, renames: dict[str, str]) -> RestorePlan:
        self._check_renames(renames)
        known = {*self.saved.operators, *self.saved.sources, *(state.uid for state in self.saved.states)}
        targets = {uid: renames.get(uid, uid) for uid in known}
        uids = {old: new for old, new in targets.items() if new in self.program}
        self._operators(set(uids.values()))
        for state in self.saved.states:
            self._state(state, targets[state.uid])
        there = {(mapping.target.uid, mapping.target.name) for mapping in self.states}
        seen = there | {(row.uid, row.name) for row in self.rows}
        for (uid, name), wanted in self.wanted.items():
            if (uid, name) not in seen and not wanted.is_timers:
                self._row("state", uid, name, "new", "starts empty")
        sources = self._sources(targets)
        self._check_numbers()
        return RestorePlan(tuple(self.rows), tuple(self.states), uids, sources)

    def _row(self, subject: Subject, uid: str, name: str, outcome: Outcome, why: str = "") -> None:
        self.rows.append(Row(subject, uid, name, outcome, why))

    def _check_renames(self, renames: dict[str, str]) -> None:
        known = {*self.saved.operators, *self.saved.sources}
        taken: dict[str, str] = {}
        for old, new in renames.items():
            what = f"{old} → {new}"
            problems = []
            if old not in known:
                problems.append(f"there is no saved operator {old!r}; saved are {_list(known)}")
            if new not in self.program:
                problems.append(f"the program has no operator {new!r}; it has {_list(self.program)}")
            if new in known and new not in renames and new != old:
                problems.append(f"there is a saved operator {new!r} already; rename that one too")
            if (other := taken.setdefault(new, old)) != old:
                problems.append(f"{other!r} is to become {new!r} too")
            for problem in problems:
                self._row("rename", what, "", "refused", problem)

    def _operators(self, matched: set[str]) -> None:
        for operator in self.program.values():
            if operator.uid in matched:
                self._row("operator", operator.uid, "", "restored")
            elif operator.stateful or operator.source is not None:
                self._row("operator", operator.uid, "", "new", "starts empty")

    def _state(self, state: StateInfo, uid: str) -> None:
        operator = self.program.get(uid)
        wanted = self.wanted.get((uid, state.name))
        if wanted is not None:
            verdict = compare_state(state, wanted, operator)
            if verdict.fits:
                self._map(state, wanted, verdict)
                self._row("state", uid, state.name, "migrated" if verdict.migrates else "restored", verdict.why)
            else:
                self._row("state", uid, state.name, "refused", verdict.why)
        elif operator is not None and operator.stateful and not operator.complete:
            self._keep(state, operator)
        else:
            missing = f"the program has no operator {uid!r}"
            self._gone(state, uid, missing if operator is None else "the operator has no such state any more")

    def _gone(self, state: StateInfo, uid: str, why: str) -> None:
        if (state.uid, state.name) in self.saved.empty:
            self._row("state", uid, state.name, "dropped", f"{why}; it was empty")
        elif self.allow_non_restored:
            self._row("state", uid, state.name, "dropped", f"{why}; it stays in the savepoint")
        else:
            self._row(
                "state", uid, state.name, "refused",
                f"{why}; restore it under its new uid with --map {uid}=NEW, or leave it behind with "
                "--allow-non-restored-state",
            )  # fmt: skip

    def _keep(self, state: StateInfo, operator: ProgramOperator) -> None:
        """A state that the function may ask for once it runs: its keys may have changed, its type is not known."""
        if operator.migrations.version(state.name) > state.version:
            self._row(
                "state", operator.uid, state.name, "refused",
                "has migrations, but is not declared on the function's class, so its type is not known before it runs; "
                "make its descriptor a class attribute",
            )  # fmt: skip
            return
        as_saved = state.named(operator.uid, state.name)
        if state.key_type is not None:
            key_type = state.key_type if operator.key_type is None else operator.key_type
            as_saved = as_saved.replace(key_type=key_type, key_version=operator.migrations.key_version)
        verdict = compare_state(state, as_saved, replace(operator, value_types={}))
        if not verdict.fits:
            self._row("state", operator.uid, state.name, "refused", verdict.why)
            return
        self._map(state, as_saved, verdict)
        why = f"{verdict.why}; " if verdict.why else ""
        self._row(
            "state",
            operator.uid,
            state.name,
            "kept",
            f"{why}not declared up front; there when the function asks for it",
        )

    def _map(self, state: StateInfo, wanted: StateInfo, verdict: Verdict) -> None:
        rewritten = verdict.migrates or (state.ttl_ms is None) != (wanted.ttl_ms is None)
        self.states.append(
            StateMapping(state.uid, state.name, wanted, verdict.step, verdict.values, verdict.keys, rewritten)
        )

    def _sources(self, targets: Mapping[str, str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for old, kind in self.saved.sources.items():
            new = targets[old]
            operator = self.program.get(new)
            if operator is None or operator.source is None:
                found[old] = new
                self._row("source", new, "", "kept", "not in the program; its position stays, should it come back")
            elif operator.source != kind:
                self._row(
                    "source", new, "", "refused",
                    f"its position is of a {kind} source, the program has a {operator.source} source; give it a new uid",
                )  # fmt: skip
            else:
                found[old] = new
                self._row("source", new, "", "restored")
        told = {row.uid for row in self.rows if row.subject == "source"}
        for operator in self.program.values():
            if operator.source is not None and operator.uid not in told:
                self._row("source", operator.uid, "", "new", "reads from its own start")
        return found

    def _check_numbers(self) -> None:
        """Two states with one number would be one state."""
        taken: dict[int, StateMapping] = {}
        for mapping in self.states:
            target = mapping.target
            first = taken.setdefault(target.sid, mapping)
            if first is not mapping:
                other = first.target
                self._row(
                    "state", target.uid, target.name, "refused",
                    f"gets the number of state {other.name!r} of operator {other.uid!r}; rename one of the operators",
                )  # fmt: skip


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "none"
