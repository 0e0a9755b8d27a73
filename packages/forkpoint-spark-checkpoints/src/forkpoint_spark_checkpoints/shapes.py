"""Converts Spark's states, which are flat columns, to keys, values, windows and timers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import ConfigError
from forkpoint.functions import MergingWindowAssigner, WindowAssigner
from forkpoint.functions.state.ttl import to_ms
from forkpoint.functions.windows.windows import TimeWindow
from forkpoint.runtime.windows.merging_windows import MERGING_WINDOWS
from forkpoint.runtime.windows.spec import CONTENTS, WindowSpec
from forkpoint.savepoint.edit.drafts import ExternalData, PlannedState
from forkpoint.savepoint.inspect.names import TIMERS
from forkpoint.types import TypeInformation, type_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from forkpoint_spark_checkpoints.query_state import QueryOperator, QueryState


@dataclass(frozen=True)
class ImportedState:
    """How to import one of Spark's states.

    ``name``: the state's name in the program; by default Spark's. ``value``: SQL over the state's columns, for the value
    (an element of a list, a value of a map); by default the only column, or a record of all. ``value_type``: its type, as in a
    descriptor; by default from the schema. ``ttl``: the time to live since the last write, required if entries expire in Spark.
    ``rows``: a function from the state's DataFrame to a DataFrame with the columns ``key`` and ``value`` (and ``map_key`` or
    ``index``, unchanged).
    """

    name: str | None = None
    value: str | None = None
    value_type: Any = None
    ttl: timedelta | None = None
    rows: Callable[[DataFrame], DataFrame] | None = None


@dataclass(frozen=True)
class ImportedOperator:
    """How to import one of Spark's stateful operators, as the operator ``uid``.

    ``states``: by Spark's names, "state" for an operator's only state; others are imported unchanged. ``key``: SQL over the
    columns, for the key; by default the key's only column, or a record of all. ``key_type``: its type; by default from the
    schema. ``window``: the program's window assigner, if the groups are windows; the values become the accumulators of a window
    operator.
    """

    uid: str
    states: Mapping[str, ImportedState] = field(default_factory=dict)
    key: str | None = None
    key_type: Any = None
    window: WindowAssigner | None = None


@dataclass(frozen=True)
class StateFound:
    """A state of a checkpoint. ``key_columns`` and ``columns``: the names, for use in SQL, and Spark's types."""

    operator: int
    name: str
    kind: str
    rows: int
    key_columns: Mapping[str, str]
    columns: Mapping[str, str]


@dataclass(frozen=True)
class _StateRows:
    """A state's rows in forkpoint's columns. ``nulls``: paths that have nulls."""

    state: QueryState
    operator: ImportedOperator
    wanted: ImportedState
    frame: DataFrame
    nulls: frozenset[str]


def counted(state: QueryState) -> StateFound:
    """A state's columns and number of rows."""
    types = {field.name: field.dataType.simpleString() for field in state.frame.schema.fields}
    columns = {name: of for name, of in types.items() if name not in state.key}
    return StateFound(state.operator, state.name, state.kind, state.frame.count(), {k: types[k] for k in state.key}, columns)


def shaped(found: Sequence[QueryOperator], wanted: Mapping[int, ImportedOperator]) -> dict[str, list[PlannedState]]:
    """The states to write, by uid.

    Raises ConfigError if the arguments and the state do not match, TypeNotSupported for columns of unsupported types.
    """
    by_uid: dict[str, list[_StateRows]] = {}
    for operator in found:
        if operator.id in wanted:
            chosen = wanted[operator.id]
            _check_names(operator, chosen)
            by_uid.setdefault(chosen.uid, []).extend(_shape(state, chosen) for state in operator.states)
    return {uid: _plan_states(uid, states) for uid, states in by_uid.items()}


def _check_names(operator: QueryOperator, chosen: ImportedOperator) -> None:
    known = [state.name for state in operator.states if not state.is_timers]
    if unknown := sorted(set(chosen.states) - set(known)):
        raise ConfigError(
            f"operator {operator.id} ({operator.name}) has no state {unknown[0]!r}; it has {', '.join(known) or 'none'}"
        )


def _shape(state: QueryState, operator: ImportedOperator) -> _StateRows:
    from forkpoint_spark_checkpoints.query_state import nulls, select

    wanted = operator.states.get(state.name, ImportedState())
    if wanted.rows is not None and not state.is_timers:
        frame = _call_hook(state, wanted.rows)
    else:
        frame = select(state, _expressions(state, operator, wanted))
    _, found = nulls(frame, [name for name in ("key", "map_key", "namespace", "value") if name in frame.columns])
    return _StateRows(state, operator, wanted, frame, found)


def _expressions(state: QueryState, operator: ImportedOperator, wanted: ImportedState) -> list[str]:
    """The columns to select, in SQL."""
    window = None if operator.window is None else _window_column(state)
    key = tuple(name for name in state.key if name != window)
    columns = [_pack("key", key, operator.key)]
    if state.map_key:
        columns.append(_pack("map_key", state.map_key, None))
    if window is not None:
        start, end = (f"unix_millis(`{window}`.{side}) AS {side}" for side in ("start", "end"))
        columns.append(f"struct({start}, {end}) AS namespace")
    if state.is_timers:
        return [*columns, "timestamp"]
    if state.kind == "list":
        columns.append("CAST(index AS BIGINT) AS index")
    if state.opaque and wanted.value is None:
        raise ConfigError(
            f"{state.where}: {', '.join(state.opaque)} is an internal buffer of Spark (collect_list, collect_set, sketches …), "
            "which only Spark can read; choose the other columns with value="
        )
    columns.append(_pack("value", state.value, wanted.value))
    if state.expires and wanted.ttl is not None:
        columns.append(f"ttl_expiration_ms - {to_ms(wanted.ttl, 'ttl', 1)} AS ttl_stamp")
    return columns


def _call_hook(state: QueryState, rows: Callable[[DataFrame], DataFrame]) -> DataFrame:
    frame = rows(state.frame)
    needed = {"value": ["key", "value"], "list": ["key", "index", "value"], "map": ["key", "map_key", "value"]}
    missing = [name for name in needed[state.kind] if name not in frame.columns]
    if missing:
        raise ConfigError(f"{state.where}: rows= returned no column {missing[0]!r}, but {', '.join(frame.columns)}")
    return frame


def _pack(role: str, names: Sequence[str], sql: str | None) -> str:
    """A column: the SQL expression if given; otherwise the only named column, a record of several, or true if there is none."""
    quoted = [f"`{name.replace('`', '``')}`" for name in names]
    made = "true" if not quoted else quoted[0] if len(quoted) == 1 else f"struct({', '.join(quoted)})"
    return f"{sql or made} AS {role}"


def _window_column(state: QueryState) -> str:
    fields = state.frame.schema
    for name in state.key:
        of: Any = fields[name].dataType
        if getattr(of, "names", None) == ["start", "end"]:
            return name
    raise ConfigError(f"{state.where}: its groups ({', '.join(state.key)}) have no window; leave the window out")


# -- types


def _plan_states(uid: str, states: Sequence[_StateRows]) -> list[PlannedState]:
    key = _key_type(uid, states)
    planned: dict[str, PlannedState] = {}
    for shaped_state in states:
        for each in _plan(uid, shaped_state, key):
            if each.info.name in planned:
                raise ConfigError(f"operator {uid!r} would have two states named {each.info.name!r}; give them different names")
            planned[each.info.name] = each
    return list(planned.values())


def _key_type(uid: str, states: Sequence[_StateRows]) -> TypeInformation:
    given = [type_of(each.operator.key_type) for each in states if each.operator.key_type is not None]
    nulls = frozenset(path for each in states for path in each.nulls if path.partition(".")[0] in ("key", "key[]"))
    found = given or [_column_type(each, "key", nulls) for each in states]
    for other in found[1:]:
        if other.describe() != found[0].describe():
            raise ConfigError(f"operator {uid!r} would have keys of types {found[0]!r} and {other!r}; use two uids")
    return found[0]


def _column_type(shaped_state: _StateRows, column: str, nulls: frozenset[str] | None = None) -> TypeInformation:
    from forkpoint_spark_checkpoints.state_types import state_type

    found = shaped_state.frame.schema[column].dataType
    return state_type(found, shaped_state.nulls if nulls is None else nulls, column)


def _plan(uid: str, of: _StateRows, key: TypeInformation) -> Iterator[PlannedState]:
    state, wanted = of.state, of.wanted
    if state.is_timers:
        domain = state.kind.removeprefix("timers-")
        yield PlannedState(StateInfo.of(uid, TIMERS[domain], state.kind, key), ExternalData(of.frame, {}))
        return
    given = None if wanted.value_type is None else type_of(wanted.value_type)
    value = given or _column_type(of, "value")
    if of.operator.window is not None:
        yield from _window_state(uid, of, key, value, of.operator.window)
        return
    namespace = _column_type(of, "map_key") if state.kind == "map" else None
    ttl_ms = to_ms(wanted.ttl, "ttl", 1) if state.expires and wanted.ttl is not None else None
    info = StateInfo.of(uid, wanted.name or state.name, state.kind, key, value, namespace, ttl_ms)
    yield PlannedState(info, ExternalData(of.frame, {}))


def _window_state(
    uid: str, of: _StateRows, key: TypeInformation, value: TypeInformation, window: WindowAssigner
) -> Iterator[PlannedState]:
    """The accumulators of windows and the timers that fire them."""
    if not window.is_event_time() or window.window_type() != type_of(TimeWindow):
        raise ConfigError(f"{of.state.where}: the windows must use event time, not {window!r}")
    spec = WindowSpec(window, window.get_default_trigger(), None, 0, None, "aggregating", value, None, None)
    space = type_of(TimeWindow)
    contents = StateInfo.of(uid, CONTENTS, "aggregating", key, value, space, fingerprint=spec.fingerprint)
    yield PlannedState(contents, ExternalData(of.frame, {}))
    timers = of.frame.selectExpr("key", "namespace", "namespace.end - 1 AS timestamp")
    info = StateInfo.of(uid, TIMERS["event"], "timers-event", key, None, space)
    yield PlannedState(info, ExternalData(timers, {}))
    if isinstance(window, MergingWindowAssigner):
        state_window = of.frame.selectExpr("key", "namespace AS map_key", "namespace AS value")
        yield PlannedState(StateInfo.of(uid, MERGING_WINDOWS, "map", key, space, space), ExternalData(state_window, {}))
