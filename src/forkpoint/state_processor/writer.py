"""Writing savepoints: from an old one with changes, or from nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pydantic import JsonValue, ValidationError

from forkpoint.checkpoint.manifest import Parent, SourcePosition
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import EditRefused
from forkpoint.functions import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from forkpoint.graph.options import UPPER_BOUND_MAX_PARALLELISM
from forkpoint.savepoint.evolution import Change
from forkpoint.savepoint.layout import layout_of, typed
from forkpoint.savepoint.tasks import Progress, RunTasks, no_progress, run_here
from forkpoint.state_processor.data import Fitter
from forkpoint.state_processor.drafts import Draft, DraftOperator, write_draft
from forkpoint.state_processor.names import TIMERS, no_domain, no_operator, no_source, no_state
from forkpoint.state_processor.plan import Function, Given, PlannedState, Saved, described, key_type_of
from forkpoint.state_processor.reader import SavepointReader
from forkpoint.state_processor.steps import Condition, Keep, Transform, matching
from forkpoint.storage.base import open_storage
from forkpoint.types import TypeInformation, dumps, type_of

BOOTSTRAP_RUN = "bootstrap"


@dataclass
class _Operator:
    name: str
    kind: str
    states: dict[str, PlannedState]


class SavepointWriter:
    """A new savepoint in the making. After Flink's ``SavepointWriter``.

    Each method changes what will be written, in the order of the calls, and returns the writer; an unknown operator or
    state is a StateNotFound there and then, and what cannot be an EditRefused. Nothing is written before ``write``.
    """

    def __init__(self, base: Savepoint | None, job: str, max_parallelism: int, parallelism: int) -> None:
        self._base = base
        self._job = job
        self._max_parallelism = max_parallelism
        self._parallelism = parallelism
        self._parent = Parent()
        self._where = f"the new savepoint of job {job!r}"
        self._operators: dict[str, _Operator] = {}
        self._sources: dict[str, SourcePosition] = {}
        self._watermarks: dict[str, int] = {}
        self._input_watermarks: dict[str, list[int]] = {}

    @staticmethod
    def new_savepoint(job: str, *, max_parallelism: int = 128, parallelism: int = 1) -> SavepointWriter:
        """An empty savepoint. ``parallelism``: only how many subtasks operator state is recorded for; a run may have any.

        EditRefused if one of them is not from 1 to 32768.
        """
        _check_range("max parallelism", max_parallelism)
        _check_range("parallelism", parallelism)
        return SavepointWriter(None, job, max_parallelism, parallelism)

    @staticmethod
    def from_existing_savepoint(savepoint: SavepointReader | str | os.PathLike[str]) -> SavepointWriter:
        """All that a savepoint has, to begin with. Unlike Flink's, the new one won't need the old one's files."""
        reader = savepoint if isinstance(savepoint, SavepointReader) else SavepointReader.read(savepoint)
        opened, base = reader.opened, reader.metadata
        writer = SavepointWriter(base, base.job, base.max_parallelism, base.parallelism)
        writer._where = reader.path
        writer._parent = opened.as_parent()
        for operator in base.operators:
            states = {s.info.name: PlannedState(s.info, Saved(opened, s)) for s in operator.states}
            writer._operators[operator.uid] = _Operator(operator.name, operator.kind, states)
        writer._sources, writer._watermarks = dict(base.sources), dict(base.watermarks)
        writer._input_watermarks = dict(base.input_watermarks)
        return writer

    # -- states

    def with_state(
        self,
        uid: str,
        descriptor: StateDescriptor,
        data: Any,
        *,
        key_type: Any = None,
        columns: Mapping[str, str] | None = None,
    ) -> SavepointWriter:
        """Bootstrap a keyed state from a table; one of that name is replaced.

        ``descriptor``: as in the program. ``data``: a pyarrow Table, record batches or a reader, a pandas or Spark
        DataFrame, a dict of columns or dicts for rows; with the columns that reading the state shows (``state().schema``):
        a record is a column for each field or one struct. Key groups are computed; a list without ``index`` takes its
        elements as they come; entries without ``ttl_stamp`` begin to age now. ``columns``: a column of the state → the
        data's. ``key_type``: needed where the operator has no keyed state yet.

        What does not fit is an EditRefused that names the column, here if it shows in the schema, else at ``write``.
        """
        operator = self._operators.setdefault(uid, _Operator(uid, "", {}))
        old = operator.states.get(descriptor.name)
        planned = described(uid, descriptor, self._key_type(uid, operator, key_type), old)
        return self._give(operator, planned, data, columns)

    def with_timers(
        self,
        uid: str,
        data: Any,
        *,
        domain: str = "event",
        key_type: Any = None,
        columns: Mapping[str, str] | None = None,
    ) -> SavepointWriter:
        """Set an operator's timers of one time domain, "event" or "processing": columns ``key`` and ``timestamp`` (a
        timestamp, or ms since 1970); of windows ``namespace``, too. The rest as for ``with_state``."""
        name = self._timers_name(domain)
        operator = self._operators.setdefault(uid, _Operator(uid, "", {}))
        old = operator.states.get(name)
        if old is None:
            key = self._key_type(uid, operator, key_type)
            old = PlannedState(StateInfo.of(uid, name, f"timers-{domain}", key), Given((), {}))
        return self._give(operator, replace(old, steps=(), rekeyed=False), data, columns)

    def with_operator_state(
        self,
        uid: str,
        descriptor: ListStateDescriptor[Any] | MapStateDescriptor[Any, Any],
        data: Any,
        *,
        union: bool = False,
        columns: Mapping[str, str] | None = None,
    ) -> SavepointWriter:
        """Bootstrap state without keys: an operator list, or of a MapStateDescriptor broadcast state.

        Columns are ``value`` (or the fields of a record), of broadcast state ``map_key``, too. Elements of a list are dealt
        out to subtasks evenly, unless ``subtask`` says which one has an element; ``union``: each subtask gets all of them.
        """
        operator = self._operators.setdefault(uid, _Operator(uid, "", {}))
        kind, namespace = "operator-union" if union else "operator-list", None
        if isinstance(descriptor, MapStateDescriptor):
            kind, namespace = "broadcast", descriptor.key_type
        info = StateInfo.of(uid, descriptor.name, kind, None, descriptor.value_type, namespace)
        return self._give(operator, PlannedState(info, Given((), {})), data, columns)

    def _give(
        self, operator: _Operator, planned: PlannedState, data: Any, columns: Mapping[str, str] | None
    ) -> SavepointWriter:
        given = Given(data, dict(columns or {}))
        fitter = Fitter(layout_of(planned.info), given.columns)
        fitter.check_names()
        schema = getattr(data, "schema", None)
        if isinstance(schema, pa.Schema):  # columns that don't fit show without rows
            fitter(schema.empty_table())
        operator.states[planned.info.name] = replace(planned, origin=given)
        return self

    def remove_operator(self, uid: str) -> SavepointWriter:
        """Leave out all that an operator has: states, timers, watermark; of a source its position."""
        self._known(uid)
        self._operators.pop(uid, None)
        self._sources.pop(uid, None)
        self._watermarks.pop(uid, None)
        self._input_watermarks.pop(uid, None)
        return self

    def remove_state(self, uid: str, state: str) -> SavepointWriter:
        """Leave out a state."""
        del self._known(uid).states[self._state(uid, state).info.name]
        return self

    def remove_timers(self, uid: str, domain: str | None = None) -> SavepointWriter:
        """Leave out an operator's timers: of "event" or "processing" time, or both."""
        names = TIMERS.values() if domain is None else [self._timers_name(domain)]
        for name in names:
            self._known(uid).states.pop(name, None)
        return self

    def change_operator_identifier(self, uid: str, new: str) -> SavepointWriter:
        """Give an operator's or source's state another uid. EditRefused if that one is taken."""
        self._known(uid)
        if new in self._operators or new in self._sources:
            raise EditRefused(f"{self._where} has an operator {new!r} already; remove or rename that one first")
        operators = {new if old == uid else old: operator for old, operator in self._operators.items()}
        self._operators = {
            each: replace(o, states={n: s.named(each, n) for n, s in o.states.items()}) for each, o in operators.items()
        }
        self._sources = {new if old == uid else old: position for old, position in self._sources.items()}
        self._watermarks = {new if old == uid else old: mark for old, mark in self._watermarks.items()}
        self._input_watermarks = {new if old == uid else old: marks for old, marks in self._input_watermarks.items()}
        return self

    def rename_state(self, uid: str, state: str, new: str) -> SavepointWriter:
        """Give a state another name. EditRefused if the operator has one of that name."""
        found, states = self._state(uid, state), self._known(uid).states
        if new in states:
            raise EditRefused(f"{self._where}: operator {uid!r} has a state {new!r} already; remove or rename it first")
        self._known(uid).states = {
            new if name == state else name: found.named(uid, new) if name == state else each
            for name, each in states.items()
        }
        return self

    def filter(self, uid: str, condition: Condition, state: str | None = None) -> SavepointWriter:
        """Keep the rows of a state (or of ``"timers"``) for which a condition holds.

        ``condition``: SQL over the columns, ``"since > 1000 and key % 2 = 0"``; or a function of an entry,
        ``lambda e: e.value.active``. Without ``state``: of all states with keys and the timers, so that it can be about the
        key only. A list's remaining elements are numbered anew.
        """
        if state is not None:
            chosen = self._state_or_timers(uid, state)
        else:
            chosen = [each for each in self._known(uid).states.values() if not each.info.is_operator_state]
        if not chosen:
            raise EditRefused(f"{self._where}: operator {uid!r} has no {state or 'state with keys'} to filter")
        for each in chosen:
            if isinstance(condition, str):  # whether it can be evaluated shows without rows
                matching(layout_of(each.info).schema.empty_table(), condition, each.info.where)
            self._known(uid).states[each.info.name] = each.after(Keep(condition))
        return self

    def map(
        self, uid: str, state: str, function: Function, to: StateDescriptor | None = None, *, version: int | None = None
    ) -> SavepointWriter:
        """Change what each key has in a state, as ``migrate_state`` does at a restore.

        ``function`` takes a value, a list or a dict, by the kind of state, and returns what the key is to have instead; None
        for nothing. ``to``: declares the state's new type and kind, where these change; a time to live stays as it was.
        ``version``: the state's version from now on, for programs with migrations.
        """
        found = self._state(uid, state)
        info = found.info
        if info.is_operator_state or info.is_timers:
            raise EditRefused(f"{info.where} is {info.kind} state: filter it, or replace it with new data")
        update: dict[str, Any] = {} if version is None else {"version": version}
        if to is not None:
            target = described(uid, to, typed(info.key_type, info, "key"), found).info
            update |= {name: getattr(target, name) for name in ("kind", "value_type", "namespace_type")}
        change = Change(info.replace(**update), values=dumps((function,)))
        self._known(uid).states[state] = found.after(Transform(change))
        return self

    def re_key(
        self, uid: str, function: Callable[[Any], Any], key_type: Any = None, *, version: int | None = None
    ) -> SavepointWriter:
        """Give each key of an operator, with all its states and timers, another key, as ``migrate_key`` does at a restore.

        ``key_type``: of the new keys, where it changes. ``version``: of the keys from now on. Two keys that become one
        while both have state: EditRefused at ``write``.
        """
        states = self._known(uid).states
        update: dict[str, Any] = {} if version is None else {"key_version": version}
        if key_type is not None:
            update["key_type"] = type_of(key_type).describe()
        for name, found in list(states.items()):
            if not found.info.is_operator_state:
                change = Change(found.info.replace(**update), keys=dumps((function,)))
                states[name] = replace(found.after(Transform(change)), rekeyed=True)
        return self

    def with_max_parallelism(self, max_parallelism: int) -> SavepointWriter:
        """Compute all key groups anew, for another number of them: 1 to 32768, else EditRefused."""
        _check_range("max parallelism", max_parallelism)
        self._max_parallelism = max_parallelism
        return self

    # -- positions

    def with_source_position(self, uid: str, position: JsonValue) -> SavepointWriter:
        """Set where a source goes on: its own position as JSON, in the form that ``positions`` shows (of Spark's sources the
        offset). Its splits' watermarks stay; see ``reset_watermarks``."""
        if self._base is not None and uid not in self._sources and uid not in self._operators:
            raise no_source(uid, self._sources, self._where)
        old = self._sources.get(uid, SourcePosition(kind="native"))
        if old.kind == "watermarks":
            raise EditRefused(f"{self._where}: {uid!r} assigns timestamps and has no position, only watermarks")
        update: dict[str, Any] = {"position": position, "finished": False}
        if old.kind == "spark":
            text = position if isinstance(position, str) else json.dumps(position)
            update = {"spark_offset": text, "finished": False}
        try:
            self._sources[uid] = SourcePosition.model_validate(old.model_dump() | update)
        except ValidationError as error:
            raise EditRefused(f"source {uid!r}: {position!r} is no position: {error}") from error
        return self

    def remove_source_position(self, uid: str) -> SavepointWriter:
        """Forget where a source was: it begins at its own start."""
        if uid not in self._sources:
            raise no_source(uid, self._sources, self._where)
        del self._sources[uid]
        self._input_watermarks.pop(uid, None)
        return self

    def reset_watermarks(self) -> SavepointWriter:
        """Forget all watermarks, for sources that are set back: else what they read again is late. State and timers stay."""
        self._watermarks, self._input_watermarks = {}, {}
        self._sources = {uid: position.model_copy(update={"splits": {}}) for uid, position in self._sources.items()}
        return self

    # -- writing

    def write(
        self,
        path: str | os.PathLike[str],
        *,
        label: str | None = None,
        note: str | None = None,
        savepoint_id: str | None = None,
        progress: Progress = no_progress,
        spark: Any = None,
    ) -> SavepointReader:
        """Write the savepoint into a directory (path or URL) and return it. A savepoint only once it is whole.

        ``progress`` is told tasks done and tasks in all. ``spark``: a session whose executors do the work; the directory and
        the old savepoint must then be where all of them can reach them. Memory is needed for one slice of a state at a time
        (in each task).

        Raises AlreadyExists if there is a savepoint, EditRefused if rows or data do not fit, SavepointCorrupt and
        StorageError; nothing is left behind then.
        """
        target = open_storage(path)
        run_tasks: RunTasks = run_here
        if spark is not None:
            from forkpoint.state_processor.frames import tasks_on

            run_tasks = tasks_on(spark)
        draft = Draft(
            job=self._job, run=BOOTSTRAP_RUN if self._base is None else self._base.run, base=self._base, parent=self._parent,
            max_parallelism=self._max_parallelism, parallelism=self._parallelism, sources=self._sources,
            watermarks=self._watermarks, input_watermarks=self._input_watermarks,
            operators=[DraftOperator(uid, o.name, o.kind, list(o.states.values())) for uid, o in self._operators.items()],
            label=label, note=note, savepoint_id=savepoint_id,
        )  # fmt: skip
        return SavepointReader(write_draft(draft, target, run_tasks, progress))

    # -- finding

    def _known(self, uid: str) -> _Operator:
        if uid not in self._operators and uid not in self._sources:
            raise no_operator(uid, {*self._operators, *self._sources}, self._where)
        return self._operators.get(uid) or _Operator(uid, "", {})

    def _state(self, uid: str, name: str) -> PlannedState:
        states = self._known(uid).states
        if name not in states:
            raise no_state(uid, name, [n for n, s in states.items() if not s.info.is_timers], self._where)
        return states[name]

    def _state_or_timers(self, uid: str, name: str) -> list[PlannedState]:
        states = self._known(uid).states
        if name == "timers" and name not in states:
            return [state for state in states.values() if state.info.is_timers]
        return [self._state(uid, name)]

    def _timers_name(self, domain: str) -> str:
        if domain not in TIMERS:
            raise EditRefused(no_domain(domain))
        return TIMERS[domain]

    def _key_type(self, uid: str, operator: _Operator, given: Any) -> TypeInformation:
        known = key_type_of(operator.states.values())
        wanted = None if given is None else type_of(given)
        if known is None:
            if wanted is None:
                raise EditRefused(
                    f"operator {uid!r} has no keyed state yet, so its type of keys is not known: say key_type="
                )
            return wanted
        found = typed(known, next(s.info for s in operator.states.values() if s.info.key_type is not None), "key")
        if wanted is not None and wanted != found:
            raise EditRefused(f"operator {uid!r} has keys of type {found!r}, not {wanted!r}; re_key() them first")
        return found


def _check_range(what: str, value: int) -> None:
    if not 1 <= value <= UPPER_BOUND_MAX_PARALLELISM:
        raise EditRefused(f"the {what} has to be from 1 to {UPPER_BOUND_MAX_PARALLELISM}, not {value}")
