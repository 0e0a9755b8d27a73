"""Reads and compares saved state, of a savepoint or of a job's last committed epoch: states, entries, SQL, diff."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.decoders import BUILDING, json_decoder
from forkpoint.errors import ConfigError, SavepointNotFound, TypeNotSupported
from forkpoint.operations.observer import SILENT, Observer
from forkpoint.operations.roots import StateRoot
from forkpoint.savepoint.catalog.listing import LATEST
from forkpoint.savepoint.catalog.names import named_savepoint, savepoint_place
from forkpoint.savepoint.edit.steps import entries_of as row_objects
from forkpoint.savepoint.inspect.live import newest_state, while_gone
from forkpoint.savepoint.inspect.query_limits import QueryLimits
from forkpoint.state_processor import LiveState, SavepointDiff, SavepointReader, StateCollection, StateFollower, StateRows
from forkpoint.state_processor import diff as compare
from forkpoint.storage.base import Storage
from forkpoint.storage.places import plain_place
from forkpoint.types import TypeInformation

LIMIT = 20
SAMPLES = 3
T = TypeVar("T")
JOB = "job:"
"""The prefix of a name that denotes a job, even if it is also the label of a savepoint."""


@dataclass(frozen=True)
class StateShown:
    """A state, or an operator's timers. ``types``: of map key or namespace, and value; none for timers. ``rows`` and ``bytes``:
    None for a job, because only a full read would count them. ``schema``, ``view``, ``columns``: its names in SQL."""

    uid: str
    state: str
    kind: str
    key_type: TypeInformation | None
    types: tuple[TypeInformation, ...]
    rows: int | None
    bytes: int | None
    schema: str
    view: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class StatesShown:
    """All states and timers of the savepoint, or the job's checkpoint, at ``path``."""

    path: str
    job: str
    epoch: int
    states: tuple[StateShown, ...]


@dataclass(frozen=True)
class StateEntries:
    """``rows``: by role (``key``, ``value``, ``map_key``, ``namespace``, ``index``, …), as Python objects. ``total``: the
    state's number of rows, None if a key was given, and for jobs."""

    path: str
    job: str
    epoch: int
    uid: str
    state: str
    total: int | None
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class QueryResult:
    """The result of a SELECT over the savepoint, or the job's checkpoint, at ``path``. ``truncated``: whether there are more
    rows."""

    path: str
    job: str
    epoch: int
    table: pa.Table
    truncated: bool


def states(savepoint: str, *, state_root: str | None = None) -> StatesShown:
    """The states and timers of a savepoint (a path, URL, id or label, or ``latest``), or of a job at its last committed epoch."""
    return read_named(savepoint, states_of, state_root)


def states_of(saved: StateCollection[Any]) -> StatesShown:
    """The states and timers of an opened savepoint, or of a job's state."""
    shown = tuple(_shown(*names, state) for names, state in saved.views().items())
    return StatesShown(plain_place(saved.path), saved.job, saved.epoch, shown)


def _shown(schema: str, view: str, state: StateRows) -> StateShown:
    inner = () if state.is_timers else ("map_key", "namespace", "value")
    types = tuple(part.type for part in state.layout.parts if part.role in inner)
    return StateShown(
        state.uid, state.name, state.kind, state.key_type, types, state.count, state.size, schema, view, tuple(state.schema.names)
    )


def entries(
    savepoint: str, uid: str, state: str, key: str | None = None, *, limit: int | None = LIMIT, state_root: str | None = None
) -> StateEntries:
    """The rows of a state of a savepoint or job, or of ``"timers"``; with ``key``, the rows of one key, read only from the files
    that can have it.

    ``key``: plain text if keys are text, otherwise JSON: ``5``, ``["a", 1]``. ``limit``: None for all rows. Raises StateNotFound,
    and ConfigError for a key of another type or of operator state.
    """
    return read_named(savepoint, lambda saved: entries_of(saved, uid, state, key, limit=limit), state_root)


def entries_of(
    saved: StateCollection[Any], uid: str, state: str, key: str | None = None, *, limit: int | None = LIMIT
) -> StateEntries:
    """``entries`` of an opened savepoint, or of a job's state."""
    own = [each.name for each in saved.states if each.uid == uid and not each.is_timers]
    chosen = saved.timers(uid) if state == "timers" and state not in own else saved.state(uid, state)
    rows = [
        {role: value for role, value in row._asdict().items() if role != "key_group"} for row in islice(_rows(chosen, key), limit)
    ]
    total = chosen.count if key is None else None
    return StateEntries(plain_place(saved.path), saved.job, saved.epoch, uid, chosen.name, total, tuple(rows))


def _rows(state: StateRows, key: str | None) -> Iterable[Any]:
    if key is None:
        return state.rows()
    if state.key_type is None:
        raise ConfigError(f"{state.uid}.{state.name} is operator state, which has no keys; leave out the key")
    keys = [key_of(key, state.key_type)]
    if state.key_type.kind == "any" and isinstance(keys[0], list):
        keys.append(_tuples(keys[0]))  # JSON has no tuples
    return (row for value in keys for table in state.of_key(value) for row in row_objects(state.layout, table))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def key_of(text: str, type: TypeInformation) -> Any:
    """The key in ``text``: text unchanged, other types from JSON; for ``ANY``, invalid JSON is text. Raises ConfigError if the
    key is not valid for the type."""
    if type.kind in ("string", "char"):
        return text
    try:
        if type.kind == "any":
            return type.accept(_json_or(text))
        native = _native(text, type)
        return type.accept(native if type.lift is None else type.lift(native))
    except (msgspec.MsgspecError, TypeNotSupported, ValueError, TypeError) as error:
        raise ConfigError(f"{text!r} is not a key of type {type!r}; write it as JSON") from error


def _native(text: str, type: TypeInformation) -> Any:
    try:  # directly, without Python values, to preserve decimals exactly
        return json_decoder(type.wire, strict=False)(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        with BUILDING:
            return msgspec.convert(_json_or(text), type.wire, strict=False)


def _json_or(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def query(savepoint: str, sql: str, *, limits: QueryLimits | None = None, state_root: str | None = None) -> QueryResult:
    """Run a SELECT over a savepoint or a job's state, in DuckDB's dialect: each state is a view ``"uid"."state"``; see
    ``states``. ``limits``: of its resources; by default none."""
    return read_named(savepoint, lambda saved: query_of(saved, sql, limits), state_root)


def query_of(saved: StateCollection[Any], sql: str, limits: QueryLimits | None = None) -> QueryResult:
    """``query`` of an opened savepoint, or of a job's state."""
    table, truncated = (saved.query(sql), False) if limits is None else saved.query_within(sql, limits)
    return QueryResult(plain_place(saved.path), saved.job, saved.epoch, table, truncated)


def diff(
    before: str, after: str, *, samples: int = SAMPLES, state_root: str | None = None, observer: Observer = SILENT
) -> SavepointDiff:
    """Compare two savepoints: entries by operator and state, timers, positions, watermarks.

    ``samples``: how many differing entries to keep of each state.
    """
    root = StateRoot(state_root)
    a, b = open_reader(root, before), open_reader(root, after)
    with observer.progress("comparing") as report:
        return compare(a, b, samples=samples, progress=report)


def open_reader(root: StateRoot, savepoint: str) -> SavepointReader:
    """A reader of the savepoint with this path, URL, id or label, or of the latest."""
    return SavepointReader(named_savepoint(root.storage, savepoint))


def open_live(job: str, *, state_root: str | None = None) -> LiveState:
    """The state of a job at its last committed epoch, while it runs or after it ended. Raises JobNotFound."""
    return newest_state(StateRoot(state_root).storage, job)


def follow_state(job: str, *, state_root: str | None = None, directory: str | None = None) -> StateFollower:
    """The state of a job for many reads, from a local copy that follows the job; close it. ``directory``: for the copy."""
    return StateFollower(StateRoot(state_root).place, job, directory=directory)


def read_named(name: str, read: Callable[[StateCollection[Any]], T], state_root: str | None) -> T:
    """The result of ``read`` for the savepoint (path, URL, id, label or ``latest``) or the job of this name.

    Opens a job's state again if the job removes the files of that epoch meanwhile. Raises SavepointNotFound, JobNotFound after
    ``job:``, and ConfigError if the name of a job is also the label of a savepoint.
    """
    storage = StateRoot(state_root).storage
    job = job_of_name(storage, name)
    if job is None:
        return read(SavepointReader(named_savepoint(storage, name)))
    return while_gone(lambda: read(newest_state(storage, job)))


def job_of_name(storage: Storage, name: str) -> str | None:
    """The job of this name; None if it is the name of a savepoint."""
    if name.startswith(JOB) and not os.path.exists(name):
        return name.removeprefix(JOB)
    is_job = False
    if name != LATEST and "/" not in name and not os.path.exists(name):
        with suppress(ConfigError):  # not a valid name of a job
            is_job = bool(storage.list(JobPaths(name).checkpoints))
    try:
        savepoint_place(storage, name)
    except SavepointNotFound as error:
        if is_job:
            return name
        raise SavepointNotFound(f"{error}. Nor is there a job of that name; `forkpoint list -a` lists jobs") from None
    if is_job:
        raise ConfigError(f"{name!r} is a job and the label of a savepoint: write {JOB}{name} for the job, or the savepoint's id")
    return None
