"""Writes savepoints: a changed copy of an existing savepoint, or a new one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
from msgspec import ValidationError

from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import EditRefused
from forkpoint.functions import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from forkpoint.graph.options import UPPER_BOUND_MAX_PARALLELISM
from forkpoint.savepoint.edit.data import Fitter
from forkpoint.savepoint.edit.drafts import Draft, DraftOperator, ExternalData, PlannedState, SavedRows, described, write_draft
from forkpoint.savepoint.edit.steps import Condition, Keep, Transform, matching
from forkpoint.savepoint.format.layout import layout_of, typed
from forkpoint.savepoint.format.tasks import Progress, RunTasks, no_progress, run_here
from forkpoint.savepoint.inspect.names import TIMERS, no_domain, no_operator, no_source, no_state
from forkpoint.savepoint.inspect.reader import SavepointReader
from forkpoint.savepoint.restore.evolution import Change
from forkpoint.storage.base import open_storage
from forkpoint.types import TypeInformation, dumps, type_of

T = TypeVar("T")


class SavepointWriter:
    """Builds a new savepoint. Modelled on Flink's ``SavepointWriter``.

    Each method changes the draft and returns the writer; changes apply in the order of the calls. An unknown operator or
    state raises StateNotFound at the call, an impossible change EditRefused. Only ``write`` writes files.
    """

    def __init__(self, draft: Draft, where: str) -> None:
        self._draft = draft
        self._where = where

    @staticmethod
    def new_savepoint(job: str, *, max_parallelism: int = 128, parallelism: int = 1) -> SavepointWriter:
        """An empty savepoint. ``parallelism``: the subtasks that operator state is recorded for; runs may use another.

        Raises EditRefused if a parallelism is not from 1 to 32768.
        """
        _check_range("max parallelism", max_parallelism)
        _check_range("parallelism", parallelism)
        return SavepointWriter(Draft(job, max_parallelism, parallelism), f"the new savepoint of job {job!r}")

    @staticmethod
    def from_existing_savepoint(savepoint: SavepointReader | str | os.PathLike[str]) -> SavepointWriter:
        """A copy of a savepoint. Unlike in Flink, the new savepoint does not need the files of the old one."""
        reader = savepoint if isinstance(savepoint, SavepointReader) else SavepointReader.read(savepoint)
        opened, base = reader.opened, reader.metadata
        operators = {
            operator.uid: DraftOperator(
                operator.name, operator.kind, {s.info.name: PlannedState(s.info, SavedRows(opened, s)) for s in operator.states}
            )
            for operator in base.operators
        }
        draft = Draft(
            base.job,
            base.max_parallelism,
            base.parallelism,
            base.run,
            base,
            opened.as_parent(),
            operators,
            dict(base.sources),
            dict(base.watermarks),
            dict(base.input_watermarks),
        )
        return SavepointWriter(draft, reader.path)

    # -- states

    def with_state(
        self, uid: str, descriptor: StateDescriptor, data: Any, *, key_type: Any = None, columns: Mapping[str, str] | None = None
    ) -> SavepointWriter:
        """Bootstrap a keyed state from a table; replaces a state with the same name.

        ``descriptor``: as in the program. ``data``: a pyarrow Table, record batches or a reader, a pandas or Spark
        DataFrame, a dict of columns or dicts for rows; with the columns of ``state().schema``: a record is a column for
        each field or one struct. Key groups are computed; a list without ``index`` keeps the order of the rows; entries
        without ``ttl_stamp`` begin to age now. ``columns``: the state's column names → the data's. ``key_type``: required
        if the operator has no keyed state yet.

        Data that does not fit raises EditRefused naming the column, here if the schema shows it, else at ``write``.
        """
        operator = self._operator(uid)
        old = operator.states.get(descriptor.name)
        planned = described(uid, descriptor, self._key_type(uid, operator, key_type), old)
        return self._set_state(operator, planned, data, columns)

    def with_timers(
        self, uid: str, data: Any, *, domain: str = "event", key_type: Any = None, columns: Mapping[str, str] | None = None
    ) -> SavepointWriter:
        """Set an operator's timers of one time domain, "event" or "processing": columns ``key`` and ``timestamp`` (a
        timestamp, or ms since 1970); for windows also ``namespace``. Other parameters as for ``with_state``."""
        name = self._timers_name(domain)
        operator = self._operator(uid)
        old = operator.states.get(name)
        if old is None:
            key = self._key_type(uid, operator, key_type)
            old = PlannedState(StateInfo.of(uid, name, f"timers-{domain}", key), ExternalData((), {}))
        return self._set_state(operator, replace(old, steps=(), rekeyed=False), data, columns)

    def with_operator_state(
        self,
        uid: str,
        descriptor: ListStateDescriptor[Any] | MapStateDescriptor[Any, Any],
        data: Any,
        *,
        union: bool = False,
        columns: Mapping[str, str] | None = None,
    ) -> SavepointWriter:
        """Bootstrap state without keys: an operator list, or for a MapStateDescriptor broadcast state.

        Columns are ``value`` (or the fields of a record), and for broadcast state ``map_key``. The elements of a list are
        distributed evenly over subtasks, unless a column ``subtask`` assigns them; ``union``: each subtask gets all.
        """
        kind, namespace = "operator-union" if union else "operator-list", None
        if isinstance(descriptor, MapStateDescriptor):
            kind, namespace = "broadcast", descriptor.key_type
        info = StateInfo.of(uid, descriptor.name, kind, None, descriptor.value_type, namespace)
        return self._set_state(self._operator(uid), PlannedState(info, ExternalData((), {})), data, columns)

    def _set_state(
        self, operator: DraftOperator, planned: PlannedState, data: Any, columns: Mapping[str, str] | None
    ) -> SavepointWriter:
        origin = ExternalData(data, dict(columns or {}))
        fitter = Fitter(layout_of(planned.info), origin.columns)
        fitter.check_names()
        schema = getattr(data, "schema", None)
        if isinstance(schema, pa.Schema):  # checks the columns before it reads rows
            fitter(schema.empty_table())
        operator.states[planned.info.name] = replace(planned, origin=origin)
        return self

    def with_operator_of(self, other: SavepointReader, uid: str) -> SavepointWriter:
        """An operator's states, timers and watermarks as in another savepoint, in place of its own."""
        source = SavepointWriter.from_existing_savepoint(other)
        self._draft.operators[uid] = source._known(uid)
        for name in ("watermarks", "input_watermarks"):
            mine, theirs = getattr(self._draft, name), getattr(source._draft, name)
            mine.pop(uid, None)
            mine.update({uid: theirs[uid]} if uid in theirs else {})
        return self

    def with_replaced(self, uid: str, other: SavepointReader, replaced: str) -> SavepointWriter:
        """The states of the query ``replaced`` in another savepoint as those that operator ``uid`` has replaced: the next run
        emits the difference between both results."""
        states = self._known(uid).states
        for state in SavepointWriter.from_existing_savepoint(other)._known(replaced).states.values():
            if state.info.is_shown:
                info = state.info.as_replaced(uid)
                states[info.name] = replace(state, info=info)
        return self

    def with_nothing_replaced(self, uid: str) -> SavepointWriter:
        """The next run emits the whole result of the query at operator ``uid``, as if it had replaced one without rows."""
        states = self._known(uid).states
        for state in [each for each in states.values() if each.info.is_shown]:
            info = state.info.as_replaced(uid)
            states[info.name] = PlannedState(info, ExternalData((), {}))
        return self

    def remove_operator(self, uid: str) -> SavepointWriter:
        """Remove an operator with its states, timers and watermark, or a source with its position."""
        self._known(uid)
        draft = self._draft
        by_uid: tuple[dict[str, Any], ...] = draft.operators, draft.sources, draft.watermarks, draft.input_watermarks
        for each in by_uid:
            each.pop(uid, None)
        return self

    def remove_state(self, uid: str, state: str) -> SavepointWriter:
        """Remove a state."""
        del self._known(uid).states[self._state(uid, state).info.name]
        return self

    def remove_timers(self, uid: str, domain: str | None = None) -> SavepointWriter:
        """Remove an operator's timers: of "event" or "processing" time, or both."""
        names = TIMERS.values() if domain is None else [self._timers_name(domain)]
        for name in names:
            self._known(uid).states.pop(name, None)
        return self

    def change_operator_identifier(self, uid: str, new: str) -> SavepointWriter:
        """Change the uid of an operator or source. EditRefused if the new uid is in use."""
        self._known(uid)
        draft = self._draft
        if new in draft.operators or new in draft.sources:
            raise EditRefused(f"{self._where} already has an operator {new!r}; remove or rename that operator first")

        def renamed(by_uid: Mapping[str, T]) -> dict[str, T]:
            return {new if old == uid else old: value for old, value in by_uid.items()}

        if uid in draft.operators:
            operator = draft.operators[uid]
            operator.states = {name: state.named(new, name) for name, state in operator.states.items()}
        draft.operators, draft.sources = renamed(draft.operators), renamed(draft.sources)
        draft.watermarks, draft.input_watermarks = renamed(draft.watermarks), renamed(draft.input_watermarks)
        return self

    def rename_state(self, uid: str, state: str, new: str) -> SavepointWriter:
        """Rename a state. EditRefused if the operator already has a state with the new name."""
        found, operator = self._state(uid, state), self._known(uid)
        if new in operator.states:
            raise EditRefused(f"{self._where}: operator {uid!r} already has a state {new!r}; remove or rename it first")
        operator.states = {
            new if name == state else name: found.named(uid, new) if name == state else each
            for name, each in operator.states.items()
        }
        return self

    def filter(self, uid: str, condition: Condition, state: str | None = None) -> SavepointWriter:
        """Keep the rows of a state (or of ``"timers"``) that match a condition.

        ``condition``: SQL over the columns, ``"since > 1000 and key % 2 = 0"``; or a function of an entry,
        ``lambda e: e.value.active``. Without ``state`` it applies to all keyed states and the timers, so it can only use
        the key. Renumbers the remaining elements of lists.
        """
        states = self._known(uid).states
        if state is None:
            chosen = [each for each in states.values() if not each.info.is_operator_state]
        elif state == "timers" and state not in states:
            chosen = [each for each in states.values() if each.info.is_timers]
        else:
            chosen = [self._state(uid, state)]
        if not chosen:
            raise EditRefused(f"{self._where}: operator {uid!r} has no {state or 'state with keys'} to filter")
        for each in chosen:
            if isinstance(condition, str):  # finds invalid SQL before it reads rows
                matching(layout_of(each.info).schema.empty_table(), condition, each.info.where)
            states[each.info.name] = each.after(Keep(condition))
        return self

    def map(
        self,
        uid: str,
        state: str,
        function: Callable[[Any], Any],
        to: StateDescriptor | None = None,
        *,
        version: int | None = None,
    ) -> SavepointWriter:
        """Change the content of each key in a state, as ``migrate_state`` does at a restore.

        ``function`` takes a value, a list or a dict, depending on the kind of state, and returns the new content; None
        removes it. ``to`` declares the state's new type and kind, if they change; the time to live stays. ``version``:
        the state's new version, for programs with migrations.
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
        """Change the keys of an operator, in all its states and timers, as ``migrate_key`` does at a restore.

        ``key_type``: the type of the new keys, if it changes. ``version``: the keys' new version. If two keys that both have
        state become one, ``write`` raises EditRefused.
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
        """Recompute all key groups for another max parallelism: 1 to 32768, else EditRefused."""
        _check_range("max parallelism", max_parallelism)
        self._draft.max_parallelism = max_parallelism
        return self

    # -- positions

    def with_source_position(self, uid: str, position: Any) -> SavepointWriter:
        """Set where a source resumes: its position as JSON, as ``positions`` shows it; for Spark's sources the offset.
        The watermarks of its splits stay; see ``reset_watermarks``."""
        sources = self._draft.sources
        if self._draft.base is not None and uid not in sources and uid not in self._draft.operators:
            raise no_source(uid, sources, self._where)
        old = sources.get(uid, SourcePosition(kind="native"))
        if old.kind == "watermarks":
            raise EditRefused(f"{self._where}: {uid!r} assigns timestamps and has no position, only watermarks")
        update: dict[str, Any] = {"position": position, "finished": False}
        if old.kind == "spark":
            text = position if isinstance(position, str) else json.dumps(position)
            update = {"spark_offset": text, "finished": False}
        try:
            sources[uid] = SourcePosition.from_content(old.content() | update)
        except ValidationError as error:
            raise EditRefused(f"source {uid!r}: {position!r} is not a valid position: {error}") from error
        return self

    def remove_source_position(self, uid: str) -> SavepointWriter:
        """Remove a source's position: it reads from its start."""
        if uid not in self._draft.sources:
            raise no_source(uid, self._draft.sources, self._where)
        del self._draft.sources[uid]
        self._draft.input_watermarks.pop(uid, None)
        return self

    def reset_watermarks(self) -> SavepointWriter:
        """Remove all watermarks, for sources that rewind: otherwise the elements that they read again would be late. State and
        timers stay."""
        draft = self._draft
        draft.watermarks, draft.input_watermarks = {}, {}
        draft.sources = {uid: position.replace(splits={}) for uid, position in draft.sources.items()}
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
        """Write the savepoint into a directory (path or URL) and return it.

        ``progress`` is called with the numbers of completed tasks and of all tasks. ``spark``: a session whose executors run
        the tasks; all must be able to reach the directory and the old savepoint. A task needs memory for one slice of a state.

        Raises AlreadyExists if there is a savepoint, EditRefused if rows or data do not fit, SavepointCorrupt and
        StorageError; leaves no files after an error.
        """
        run_tasks: RunTasks = run_here
        if spark is not None:
            from forkpoint.spark.background_tasks import run_tasks_on

            run_tasks = run_tasks_on(spark)
        draft = replace(self._draft, label=label, note=note, savepoint_id=savepoint_id)
        return SavepointReader(write_draft(draft, open_storage(path), run_tasks, progress))

    # -- finding

    def _operator(self, uid: str) -> DraftOperator:
        """The operator; adds it if it does not exist."""
        return self._draft.operators.setdefault(uid, DraftOperator(uid))

    def _known(self, uid: str) -> DraftOperator:
        if uid not in self._draft.operators and uid not in self._draft.sources:
            raise no_operator(uid, {*self._draft.operators, *self._draft.sources}, self._where)
        return self._draft.operators.get(uid) or DraftOperator(uid)

    def _state(self, uid: str, name: str) -> PlannedState:
        states = self._known(uid).states
        if name not in states:
            raise no_state(uid, name, [n for n, s in states.items() if not s.info.is_timers], self._where)
        return states[name]

    def _timers_name(self, domain: str) -> str:
        if domain not in TIMERS:
            raise EditRefused(no_domain(domain))
        return TIMERS[domain]

    def _key_type(self, uid: str, operator: DraftOperator, given: Any) -> TypeInformation:
        info = next((s.info for s in operator.states.values() if s.info.key_type is not None), None)
        wanted = None if given is None else type_of(given)
        found = wanted if info is None else typed(info.key_type, info, "key")
        if found is None:
            raise EditRefused(f"operator {uid!r} has no keyed state yet, so the type of its keys is unknown: give key_type=")
        if wanted is not None and wanted != found:
            raise EditRefused(f"operator {uid!r} has keys of type {found!r}, not {wanted!r}; re_key() them first")
        return found


def _check_range(what: str, value: int) -> None:
    if not 1 <= value <= UPPER_BOUND_MAX_PARALLELISM:
        raise EditRefused(f"the {what} must be from 1 to {UPPER_BOUND_MAX_PARALLELISM}, not {value}")
