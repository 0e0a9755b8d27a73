"""What a restore would do to each operator, state and source: decided before anything is touched. Pure.

States are matched by operator uid and state name. ``compare_state`` is the one place that decides whether a saved state
fits a declared one: as it is, converted because its value type evolved, or through registered migrations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from forkpoint.checkpoint.manifest import Manifest, SourcePosition
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.checkpoint.states import OPERATOR_KINDS, TIMER_KINDS, StateInfo
from forkpoint.errors import RestoreRefused, TypeNotSupported
from forkpoint.graph.transformations import Migrations
from forkpoint.savepoint.evolution import Migration
from forkpoint.types import Misfit, Step, TypeInformation, evolve, from_description, same_bytes, same_keys
from forkpoint.types.evolution import SAME, Same

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
class ProgramOperator:
    """An operator of the new program.

    ``source``: the kind of its position ("native", "spark", …) if it has one. ``complete``: whether the declared states
    are all that it can have; False for a function that may ask for more once it runs, as in ``open()``. What such an
    operator had and does not declare is kept. ``value_types``: of the declared states, with their classes, which know
    more than descriptions do. ``key_type``: the description of its keys.
    """

    uid: str
    kind: str
    stateful: bool
    source: str | None = None
    complete: bool = True
    value_types: Mapping[str, TypeInformation] = field(default_factory=dict)
    key_type: Any = None
    migrations: Migrations = field(default_factory=Migrations)


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


@dataclass(frozen=True)
class Verdict:
    """Whether a saved state fits; ``why`` says what does not, or what changes on the way. The rest as in StateMapping."""

    fits: bool
    why: str = ""
    step: Step = SAME
    values: tuple[Migration, ...] = ()
    keys: tuple[Migration, ...] = ()

    @property
    def migrates(self) -> bool:
        return bool(self.values or self.keys) or not isinstance(self.step, Same)


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


def compare_state(saved: StateInfo, wanted: StateInfo, program: ProgramOperator | None = None) -> Verdict:
    """Whether a saved state can become the declared one: as it is, converted, or migrated. ``program``: whose it is."""
    migrations = Migrations() if program is None else program.migrations
    # What does not belong to keys has nothing to migrate with them.
    keys = () if wanted.key_type is None else chain(migrations.keys, saved.key_version, "keys")
    if isinstance(keys, str):
        return Verdict(False, keys)
    if not keys and not same_keys(saved.key_type, wanted.key_type):
        return _type_changed("key", saved.key_type, wanted.key_type, f"migrate_key({saved.key_version}, …)")
    values = chain(migrations.states.get(saved.name, {}), saved.version, "values")
    if isinstance(values, str):
        return Verdict(False, values)
    step: Step = SAME
    notes = [f"{count} migration{'s' if count > 1 else ''} of {what}" for count, what in _counted(values, keys)]
    if values:
        if not {saved.kind, wanted.kind}.isdisjoint((*TIMER_KINDS, *OPERATOR_KINDS)):
            return Verdict(False, f"{saved.kind} state cannot be migrated to {wanted.kind} state; give it a new name")
        if "map" not in (saved.kind, wanted.kind) and not same_bytes(saved.namespace_type, wanted.namespace_type):
            return _type_changed("namespace", saved.namespace_type, wanted.namespace_type)
    else:
        found = _evolution(saved, wanted, program)
        if isinstance(found, Verdict):
            return found
        step, changes = found
        notes += changes
    if saved.ttl_ms is None and wanted.ttl_ms is not None:
        notes.append("has a time to live now: entries begin to age with this run")
    elif saved.ttl_ms is not None and wanted.ttl_ms is None:
        notes.append("has no time to live any more")
    return Verdict(True, "; ".join(notes), step, values, keys)


def chain(functions: Mapping[int, Migration], version: int, what: str) -> tuple[Migration, ...] | str:
    """The migrations from a version to the program's; text if they don't lead there."""
    newest = max(functions, default=0) + 1
    if version > newest:
        return (
            f"its {what} are of version {version}, the program's of version {newest}; register the migrations again that were "
            f"taken out (the one from version {version - 1} is enough), or restore with a newer program"
        )
    if missing := [v for v in range(version, newest) if v not in functions]:
        return f"its {what} are of version {version}, and there is no migration from version {missing[0]}; register one"
    return tuple(functions[v] for v in range(version, newest))


def _counted(values: Sequence[Migration], keys: Sequence[Migration]) -> list[tuple[int, str]]:
    return [(len(steps), what) for steps, what in ((keys, "keys"), (values, "values")) if steps]


def _evolution(
    saved: StateInfo, wanted: StateInfo, program: ProgramOperator | None
) -> tuple[Step, tuple[str, ...]] | Verdict:
    """How values of a state without migrations are converted."""
    remedy = f"migrate_state({saved.version}, …, state={saved.name!r})"
    if saved.kind != wanted.kind:
        return Verdict(
            False,
            f"was {saved.kind} state and is declared as {wanted.kind} state; give it a new name, or register {remedy}",
        )
    if not same_bytes(saved.namespace_type, wanted.namespace_type):
        what = "map key" if saved.kind in ("map", "broadcast") else "namespace"
        return _type_changed(what, saved.namespace_type, wanted.namespace_type, remedy if saved.kind == "map" else "")
    if saved.fingerprint != wanted.fingerprint:
        return Verdict(False, f"it means something else now: was {saved.fingerprint}, is {wanted.fingerprint}")
    if saved.value_type == wanted.value_type:
        return SAME, ()
    if saved.value_type is None or wanted.value_type is None:
        return _type_changed("value", saved.value_type, wanted.value_type)
    declared = None if program is None else program.value_types.get(wanted.name)
    old: Any = saved.value_type
    new: Any = wanted.value_type
    found = evolve(old, declared or from_description(new))
    if isinstance(found, Misfit):
        return _type_changed("value", saved.value_type, wanted.value_type, remedy, found.why)
    return found.step, found.changes


def _type_changed(what: str, old: Any, new: Any, remedy: str = "", why: str = "") -> Verdict:
    text = f"its {what} type was {type_text(old)} and is declared as {type_text(new)}"
    return Verdict(False, "".join((text, f" ({why})" if why else "", f"; register {remedy}" if remedy else "")))


def type_text(description: Any) -> str:
    """A type's description as people write it."""
    if description is None:
        return "none"
    try:
        return repr(from_description(description))
    except TypeNotSupported:
        return str(description)


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
