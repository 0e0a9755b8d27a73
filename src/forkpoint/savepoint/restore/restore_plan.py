"""Plans a restore: decides the outcome for each operator, state and source before it changes anything. Pure.

Matches states by operator uid and state name; ``compatibility`` decides whether they fit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Literal

from forkpoint.checkpoint.manifest import Manifest, SourcePosition
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.checkpoint.states import EMITTED, StateInfo
from forkpoint.errors import RestoreRefused
from forkpoint.savepoint.restore.compatibility import ProgramOperator, Verdict, compare_state, restored_as
from forkpoint.savepoint.restore.evolution import Conversion
from forkpoint.types import TypeInformation

Outcome = Literal["restored", "migrated", "new", "kept", "dropped", "refused"]
Subject = Literal["operator", "state", "source", "rename"]
OPTIONS = " /*+ OPTIONS("
"""What follows the name of a table, in the names of operators that read it with options of their own."""
_EMPTIED = (
    "accepted: it starts empty, and what was written before stays as it is; `forkpoint recompute` would keep the result whole"
)
_MISSING = "compute its state from the input (forkpoint recompute), or start it with the rows to come (--accept {}=empty)"
_START = "give them another uid, so that both start empty, or read the input again in a new job"
_AGAIN = "compute it again from its input (forkpoint recompute), or write the query's result into another table"
_WHOLE = "compute it from its input (forkpoint recompute), or accept all of these operators, if their state does not fit either"


@dataclass(frozen=True)
class Saved:
    """The content of a savepoint or checkpoint: states, names of operators by uid, kinds of sources by uid.

    ``empty``: uid and name of states known to have no entries; checkpoints do not count entries. ``read``: uids of sources that
    may have given elements.
    """

    states: tuple[StateInfo, ...]
    operators: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    empty: Collection[tuple[str, str]] = ()
    read: Collection[str] = ()

    @staticmethod
    def of(saved: Savepoint | Manifest) -> Saved:
        operators = {o.uid: o.name for o in saved.operators}
        if isinstance(saved, Manifest):
            known = {state.uid: state.uid for state in saved.states}
            return Saved(tuple(saved.states), known | operators, _kinds(saved.sources), read=_read(saved.sources))
        states = [state for operator in saved.operators for state in operator.states]
        empty = {(state.info.uid, state.info.name) for state in states if not state.entries}
        return Saved(tuple(state.info for state in states), operators, _kinds(saved.sources), empty, _read(saved.sources))


def _kinds(sources: Mapping[str, SourcePosition]) -> dict[str, str]:
    return {uid: position.kind for uid, position in sources.items()}


def _read(sources: Mapping[str, SourcePosition]) -> list[str]:
    """The sources that have given elements; of Spark's, that is not known."""
    return [uid for uid, of in sources.items() if of.kind == "spark" or any(split.count for split in of.splits.values())]


@dataclass(frozen=True)
class Row:
    """A line of the comparison. ``uid``: the program's if it has the operator. ``why``: for people."""

    subject: Subject
    uid: str
    name: str
    outcome: Outcome
    why: str = ""


@dataclass(frozen=True)
class StateMapping(Conversion):
    """A saved state, and the program's state that it becomes. ``rewritten``: whether stored entries change.
    ``validates``: the type of the values if their classes may refuse some."""

    saved_uid: str
    saved_name: str
    target: StateInfo
    rewritten: bool = False
    validates: TypeInformation | None = None


@dataclass(frozen=True)
class RestorePlan:
    """The plan of a restore. ``uids``: saved uid → uid in the program, for operators that the program has.
    ``copies``: uid in the program → saved uid, of operators that start with the state of another one, to which they were equal.
    ``sources``: saved uid → uid in the new manifest; includes sources that the program no longer has: the manifest keeps
    their positions in case they return. ``emptied``: operators that start empty because that was accepted."""

    rows: tuple[Row, ...]
    states: tuple[StateMapping, ...]
    uids: Mapping[str, str]
    sources: Mapping[str, str]
    emptied: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)

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
    accept_empty: Collection[str] = (),
    check_only: bool = False,
) -> RestorePlan:
    """Compare saved state with a program, by uid and state name. ``renames``: saved uid → uid in the program. ``accept_empty``:
    uids of operators that start empty if their state does not fit.

    Raises RestoreRefused with a table of all problems; with ``check_only``, returns a plan with the refused rows instead.
    """
    planner = _Planner(
        saved, {(s.uid, s.name): s for s in wanted}, {o.uid: o for o in operators}, allow_non_restored, accept_empty
    )
    plan = planner.plan(renames or {})
    if plan.refused and not check_only:
        count = len(plan.refused)
        raise RestoreRefused(
            f"the program and the saved state do not fit together ({count} problem{'s' if count > 1 else ''}):\n"
            f"{render(plan.refused)}"
        )
    return plan


def render(rows: Iterable[Row]) -> str:
    """Aligned text, with a line per row."""
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
    accept_empty: Collection[str]
    rows: list[Row] = field(default_factory=list)
    states: list[StateMapping] = field(default_factory=list)
    joined: Mapping[str, str] = field(default_factory=dict)

    def plan(self, renames: Mapping[str, str]) -> RestorePlan:
        self._check_renames(renames)
        known = {*self.saved.operators, *self.saved.sources, *(state.uid for state in self.saved.states)}
        names = {uid: operator.name for uid, operator in self.program.items()}
        moved = moved_uses(self.saved.operators, self.saved.sources, names)
        if not moved.keys() & {*renames, *renames.values()}:
            renames = {**moved, **renames}
        targets = {uid: renames.get(uid, uid) for uid in known}
        uids = {old: new for old, new in targets.items() if new in self.program}
        parted = self._parted()
        copies = {uid: state.uid for state, uid in parted}
        self._operators({*uids.values(), *copies})
        for state in self._joined(targets):
            if state.definition == EMITTED:  # empty, and known to nobody else
                continue
            self._row("state", targets[state.uid], state.name, *self._state(state, targets[state.uid]))
        for state, uid in parted:
            self._row("state", uid, state.name, *self._state(state, uid))
        self._lacking({*targets.values(), *copies}, targets)
        emptied = self._emptied()
        present = {(mapping.target.uid, mapping.target.name) for mapping in self.states}
        present |= {(row.uid, row.name) for row in self.rows}
        for (uid, name), wanted in self.wanted.items():
            if (uid, name) not in present and not wanted.is_timers:
                self._row("state", uid, name, "new", "starts empty")
        sources = self._sources(targets, moved)
        self._check_numbers()
        return RestorePlan(tuple(self.rows), tuple(self.states), uids, sources, emptied, copies)

    def _parted(self) -> list[tuple[StateInfo, str]]:
        """The states of operators that start with those of another one, each with the uid of the operator."""
        if not any(isinstance(of := state.definition, dict) and "others" in of for state in self.saved.states):
            return []
        from forkpoint.relational.definitions.sharing import parted

        return parted(self.saved.states, self.program)

    @cached_property
    def _one(self) -> dict[str, str]:
        """The uids of operators that the program has once instead, each with that of the one."""
        found: dict[str, str] = {}
        for state in self.wanted.values():
            others = state.definition.get("others", ()) if isinstance(state.definition, dict) else ()
            found |= {other["uid"]: state.uid for other in others if other["uid"] not in self.program}
        return found

    def _joined(self, targets: Mapping[str, str]) -> Sequence[StateInfo]:
        """The saved states; those of equal operators of a query that are one now say so."""
        if not self._one:
            return self.saved.states
        from forkpoint.relational.definitions.sharing import joined

        states = self.saved.states
        renamed = [state.named(targets[state.uid], state.name) for state in states]
        found, self.joined = joined(renamed, self._one)
        return [state.replace(definition=each.definition) for state, each in zip(states, found, strict=True)]

    def _lacking(self, known: Collection[str], targets: Mapping[str, str]) -> None:
        """Refuse new operators with state of a query whose rows have been read before, and those that follow others which have
        state: their result would be wrong. ``known``: the uids of operators that are not new."""
        read = {targets[uid] for uid in self.saved.read}
        for (uid, name), state in self.wanted.items():
            operator = self.program[uid]
            before = operator.sources & read
            if uid not in known and state.is_of_query and before:
                why = f"it is new, and the job has read rows of {_list(before)} before; {_MISSING.format(uid)}"
                self._row("state", uid, name, "refused", why)
            elif uid not in known and not state.is_of_query and (followed := operator.changing & set(known)):
                why = f"it is new, but {_list(followed)} has state from before, which it would not know; {_START}"
                self._row("state", uid, name, "refused", why)

    def _emptied(self) -> tuple[str, ...]:
        """Drop all state of the operators that may start empty, and of which some state does not fit or is missing."""
        refused = dict.fromkeys(row.uid for row in self.rows if row.subject == "state" and row.outcome == "refused")
        found = self._may_start_empty([uid for uid in refused if uid in self.accept_empty])
        self.states = [each for each in self.states if each.target.uid not in found]
        changed: dict[Subject, tuple[Outcome, str]] = {"state": ("dropped", _EMPTIED), "operator": ("new", "starts empty")}
        for at, row in enumerate(self.rows):
            if row.uid in found and row.subject in changed:
                outcome, why = changed[row.subject]
                self.rows[at] = replace(row, outcome=outcome, why=why)
        return found

    def _may_start_empty(self, accepted: Sequence[str]) -> tuple[str, ...]:
        """Refuse operators that read changes of rows from before, which their empty state would not have."""
        kept = {each.target.uid for each in self.states} - set(accepted) | set(self.saved.read)
        below = {uid: self.program[uid].changing & kept for uid in accepted}
        for at, row in enumerate(self.rows):
            if row.subject == "state" and row.outcome == "refused" and (changing := below.get(row.uid)):
                why = f"it cannot start empty: {_list(changing)} would remove rows from before, which it would not have"
                self.rows[at] = replace(row, why=f"{why}; {_WHOLE}")
        return tuple(uid for uid in accepted if not below[uid])

    def _row(self, subject: Subject, uid: str, name: str, outcome: Outcome, why: str = "") -> None:
        self.rows.append(Row(subject, uid, name, outcome, why))

    def _check_renames(self, renames: Mapping[str, str]) -> None:
        known = {*self.saved.operators, *self.saved.sources}
        taken: dict[str, str] = {}
        for old, new in renames.items():
            problems = []
            if old not in known:
                problems.append(f"there is no saved operator {old!r}; the saved operators are {_list(known)}")
            if new not in self.program:
                problems.append(f"the program has no operator {new!r}; it has {_list(self.program)}")
            if new in known and new not in renames and new != old:
                problems.append(f"there already is a saved operator {new!r}; rename that operator too")
            if (other := taken.setdefault(new, old)) != old:
                problems.append(f"{other!r} is also renamed to {new!r}")
            for problem in problems:
                self._row("rename", f"{old} → {new}", "", "refused", problem)

    def _operators(self, matched: set[str]) -> None:
        for operator in self.program.values():
            if operator.uid in matched:
                self._row("operator", operator.uid, "", "restored")
            elif operator.stateful or operator.source is not None:
                self._row("operator", operator.uid, "", "new", "starts empty")

    def _state(self, state: StateInfo, uid: str) -> tuple[Outcome, str]:
        operator = self.program.get(uid)
        if state.is_replaced and operator is not None:
            if self._changes(uid):
                return "refused", (
                    "the query has changed after it was computed again, and the difference to the query before it has not been "
                    "emitted; run the query that was computed again first, or start from the savepoint from which it was made"
                )
            from forkpoint.relational.definitions.comparison import missing_functions

            if missing := missing_functions(state.definition, operator.functions):
                return "refused", missing
            self._map(state, state.named(uid, state.name), Verdict(True))
            return "restored", "the first epoch emits the difference between the query's result and that of the query before it"
        wanted = self.wanted.get((uid, state.name))
        if wanted is not None:
            wanted = restored_as(state, wanted)
            verdict = compare_state(state, wanted, operator)
            if verdict.dropped and not (self.allow_non_restored or self._is_empty(state)):
                return "refused", (
                    f"its values would lose {', '.join(verdict.dropped)}; to drop them, use --allow-non-restored-state"
                )
            if verdict.fits:
                wanted = wanted if wanted.definition is None else wanted.replace(definition=state.definition)
                self._map(state, wanted, verdict, None if operator is None else operator.value_types.get(state.name))
            outcome: Outcome = "refused" if not verdict.fits else "migrated" if verdict.migrates else "restored"
            return outcome, verdict.why
        if uid in self.joined:
            return "restored", f"operator {self.joined[uid]!r} has the same state: equal parts of a query are computed once"
        if uid in self._one:
            return "refused", f"operator {self._one[uid]!r} would take its place, but has another state; {_AGAIN}"
        if operator is None:
            return self._dropped(state, uid, f"the program has no operator {uid!r}")
        if operator.stateful and not operator.complete:
            return self._kept(state, operator)
        if state.definition is not None:
            return "dropped", "the query no longer needs it"
        return self._dropped(state, uid, "the operator no longer has this state")

    def _changes(self, uid: str) -> bool:
        """Whether the program has another query at an operator than the saved one."""
        saved = {state.name: state.definition for state in self.saved.states if state.uid == uid}
        wanted = (state for state in self.wanted.values() if state.uid == uid)
        return any(saved.get(state.name) != state.definition for state in wanted)

    def _is_empty(self, state: StateInfo) -> bool:
        return (state.uid, state.name) in self.saved.empty

    def _dropped(self, state: StateInfo, uid: str, why: str) -> tuple[Outcome, str]:
        if self._is_empty(state):
            return "dropped", f"{why}; it was empty"
        if self.allow_non_restored:
            return "dropped", f"{why}; it stays in the savepoint"
        remedy = f"restore it under its new uid with --map {uid}=NEW, or drop it with --allow-non-restored-state"
        return "refused", f"{why}; {remedy}"

    def _kept(self, state: StateInfo, operator: ProgramOperator) -> tuple[Outcome, str]:
        """The outcome for a state that the function may request at runtime: its keys may have changed, its type is unknown."""
        if operator.migrations.version(state.name) > state.version:
            return "refused", (
                "has migrations, but is not declared on the function's class, so its type is unknown before the function runs; "
                "make its descriptor a class attribute"
            )
        as_saved = state.named(operator.uid, state.name)
        if state.key_type is not None:
            key_type = state.key_type if operator.key_type is None else operator.key_type
            as_saved = as_saved.replace(key_type=key_type, key_version=operator.migrations.key_version)
        as_saved = as_saved.as_saved_now()
        verdict = compare_state(state, as_saved, replace(operator, value_types={}))
        if not verdict.fits:
            return "refused", verdict.why
        self._map(state, as_saved, verdict)
        why = f"{verdict.why}; " if verdict.why else ""
        return "kept", f"{why}not declared up front; available when the function requests it"

    def _map(self, state: StateInfo, wanted: StateInfo, verdict: Verdict, declared: TypeInformation | None = None) -> None:
        rewritten = verdict.migrates or (state.ttl_ms is None) != (wanted.ttl_ms is None)
        validated = declared if declared is not None and declared.validates else None
        conversion = {each.name: getattr(verdict, each.name) for each in fields(Conversion)}
        self.states.append(StateMapping(state.uid, state.name, wanted, rewritten, validated, **conversion))

    def _sources(self, targets: Mapping[str, str], moved: Collection[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for old, kind in self.saved.sources.items():
            new = targets[old]
            operator = self.program.get(new)
            if operator is not None and operator.source not in (None, kind):
                why = f"its position is of a {kind} source, the program has a {operator.source} source; give it a new uid"
                self._row("source", new, "", "refused", why)
                continue
            found[old] = new
            if operator is None or operator.source is None:
                self._row("source", new, "", "kept", "not in the program; its position is kept in case it returns")
            else:
                self._row("source", new, "", "restored", f"goes on as {new!r} where {old!r} was" if old in moved else "")
        listed = {row.uid for row in self.rows if row.subject == "source"}
        for operator in self.program.values():
            if operator.source is not None and operator.uid not in listed:
                self._row("source", operator.uid, "", "new", "reads from its own start")
        return found

    def _check_numbers(self) -> None:
        """States with the same number would share their entries."""
        taken: dict[int, StateMapping] = {}
        for mapping in self.states:
            target, first = mapping.target, taken.setdefault(mapping.target.sid, mapping)
            if first is not mapping:
                other = first.target
                why = f"gets the number of state {other.name!r} of operator {other.uid!r}; rename one of the operators"
                self._row("state", target.uid, target.name, "refused", why)


def moved_uses(old: Mapping[str, str], sources: Collection[str], names: Mapping[str, str]) -> dict[str, str]:
    """Saved uid → uid in the program, of uses of a table that have changed places in a query. Uids are numbered, so only the
    options in their names tell them apart. One whose place is taken, and whose options are new or gone, gets a free one.
    ``old``: the saved names of operators, by uid. ``sources``: of which positions are saved. ``names``: in the program."""
    found: dict[str, str] = {}
    for table in {name.partition(OPTIONS)[0] for name in (*old.values(), *names.values()) if OPTIONS in name}:
        before, after = (
            {uid: name for uid, name in each.items() if name.partition(OPTIONS)[0] == table} for each in (old, names)
        )
        places = {name: uid for uid, name in after.items()}
        unclear = len({*before.values()}) < len(before) or len(places) < len(after)
        if unclear or after.keys() & old.keys() - before.keys():  # which were saved without options in their names
            continue
        here = [*before, *(uid for uid in after if uid in sources and uid not in old)]
        to = {uid: places[name] for uid, name in before.items() if name in places}
        to |= {uid: uid for uid in here if uid not in to and uid not in to.values()}
        free = iter([uid for uid in here if uid not in to.values()])
        to |= {uid: next(free) for uid in here if uid not in to}
        found |= {uid: place for uid, place in to.items() if uid != place}
    return found


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "none"
