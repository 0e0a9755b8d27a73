"""Window functions: ``TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY))`` in FROM, and ``TUMBLE(ts, …)`` in GROUP BY."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from sqlglot import exp

from forkpoint.relational.aggregation import collected, ordered
from forkpoint.relational.canonical import canonical
from forkpoint.relational.event_time import is_processing_time, rowtimes, why_not_rowtime
from forkpoint.relational.expressions import Column, Expression
from forkpoint.relational.functions.times import MONTHS
from forkpoint.relational.plan import Aggregate, Plan, Select, Window, is_updating, is_windowed, nodes_of, plain_name
from forkpoint.relational.precision import ms_column
from forkpoint.relational.windows import WINDOW_NAMES, Windows
from forkpoint.sql.binding.times import interval_of
from forkpoint.sql.errors import SqlError, did_you_mean
from forkpoint.sql.tokens import CALL, arguments_of

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

    from forkpoint.sql.binding.expressions import Binder
    from forkpoint.sql.binding.table_calls import Calls

    Node = Any

PARAMETERS = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}
_USES = {
    "TUMBLE": "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES)",
    "HOP": "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)",
    "CUMULATE": "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' MINUTES, INTERVAL '10' MINUTES)",
    "SESSION": "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' MINUTES)",
}


# -- table functions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WindowCall:
    """A call of a window table function. ``data``: the query of its table. ``intervals``: by the
    names of parameters. ``at``, ``column_at``: offsets in the source."""

    function: str
    at: int
    data: Node
    column: str
    column_at: int
    intervals: Mapping[str, Node]
    partition: tuple[Token, ...]


def window_call(calls: Calls, table: Token, function: str, arguments: list[Token]) -> WindowCall:
    """The call of a window table function. Raises SqlError."""
    given: dict[str, list[Token]] = {}
    parameters = PARAMETERS[function]
    for position, (name, value) in enumerate(arguments_of(arguments)):
        name = name.upper() or (parameters[position] if position < len(parameters) else "")
        if name not in parameters or name in given or not value:
            raise calls.error((value or [table])[0], f"{function} takes {', '.join(parameters)}: {_USES[function]}")
        given[name] = value
    missing = [name for name in parameters if name not in given and name != "OFFSET"]
    if missing:
        raise calls.error(table, f"{function} needs {', '.join(missing)}: {_USES[function]}")
    column = descriptor(given["TIMECOL"])
    if column is None:
        raise calls.error(given["TIMECOL"][0], f"the event time is given as DESCRIPTOR(column): {_USES[function]}")
    intervals = {name: calls.parsed(given[name]) for name in parameters[2:] if name in given}
    data, partition = calls.table(given["DATA"])
    if partition and function != "SESSION":
        raise calls.error(partition[0], f"{function} windows are the same for all rows; PARTITION BY is for SESSION")
    return WindowCall(function, calls.at(table), data, column.text, calls.at(column), intervals, partition)


def descriptor(tokens: list[Token]) -> Token | None:
    """The column of ``DESCRIPTOR(column)``; None if that is not what it is."""
    words = [token.text.upper() for token in tokens]
    return tokens[2] if len(words) == 4 and (words[0], words[1], words[3]) == ("DESCRIPTOR", "(", ")") else None


def bind_window(call: WindowCall, data: Plan, binder: Binder) -> Window:
    """The rows of a table in their windows. Raises SqlError."""

    def error(problem: str) -> SqlError:
        return binder.scope.source.error(call.column_at, problem)

    field = next((field for field in data.schema if field.name == call.column), None)
    if field is None:
        raise error(f"there is no column {call.column!r}; {did_you_mean(call.column, (each.name for each in data.schema))}")
    lengths = {name: _interval_ms(binder, node) for name, node in call.intervals.items()}
    if call.function == "SESSION":
        windows = _windows("SESSION", lengths["GAP"], lengths["GAP"], binder, call.intervals["GAP"])
        return window_of(data, Column(field.name, field.type), windows, error, _partition(call, data, binder))
    size, step = lengths["SIZE"], next((lengths[name] for name in ("SLIDE", "STEP") if name in lengths), lengths["SIZE"])
    if step and size % step:
        raise binder.error(call.intervals["SIZE"], f"the size of {call.function} must be a multiple of its step")
    windows = _windows(call.function, size, step, binder, call.intervals["SIZE"])
    every = size if windows.kind == "CUMULATE" else step
    windows = msgspec.structs.replace(windows, offset_ms=lengths.get("OFFSET", 0) % every)
    return window_of(data, Column(field.name, field.type), windows, error)


def _partition(call: WindowCall, data: Plan, binder: Binder) -> tuple[Expression, ...]:
    fields = {field.name: field for field in data.schema}
    for token in call.partition:
        if token.text not in fields:
            raise binder.scope.source.error(
                binder.offset + token.start, f"there is no column {token.text!r}; {did_you_mean(token.text, fields)}"
            )
    return tuple(Column(token.text, fields[token.text].type) for token in call.partition)


def check_sessions(plan: Plan, error: Callable[[str], SqlError]) -> None:
    """Raise the error if rows are in sessions that nobody aggregates by session."""
    if not any(isinstance(node, Window) and node.windows.kind == "SESSION" for node in nodes_of(plan)):
        return
    plan = canonical(plan)
    aggregated = {id(node.input): node for node in nodes_of(plan) if isinstance(node, Aggregate) and is_windowed(node)}
    for node in nodes_of(plan):
        if isinstance(node, Window) and node.windows.kind == "SESSION":
            of = aggregated.get(id(node))
            keys = set() if of is None else {str(key.of) for key in of.keys} - set(node.names)
            if of is None or keys != set(map(str, node.partition)):
                raise error("SESSION windows need GROUP BY window_start, window_end and the columns of PARTITION BY, no others")
            unfit = [
                call
                for call in of.calls
                if call.function in ordered.FUNCTIONS or (call.distinct and not collected.is_collected(call.function))
            ]
            if unfit:
                raise error(
                    f"{unfit[0].function}{' of DISTINCT values' * unfit[0].distinct} in SESSION windows is not supported yet"
                )


def window_of(
    data: Plan, time: Column, windows: Windows, error: Callable[[str], SqlError], partition: tuple[Expression, ...] = ()
) -> Window:
    """Raises SqlError, made by ``error``, if a table cannot have these windows."""
    processing = is_processing_time(data, time.name)
    if processing:
        windows = msgspec.structs.replace(windows, processing=True)
    elif time.name not in rowtimes(data):
        raise error(f"column {plain_name(time.name)!r} is not event time: {why_not_rowtime(data, time.name)}")
    if is_updating(data):
        raise error("windows take rows that are only added, but those of this table are also changed and removed")
    below = data
    while isinstance(below, Select):
        below = below.input
    if isinstance(below, Window):
        raise error("the rows are in windows already; aggregate them first: GROUP BY window_start, window_end")
    taken = [field.name for field in data.schema if field.name in WINDOW_NAMES]
    if taken:
        raise error(f"the table has a column {taken[0]!r}, as windows do; give it another name in a subquery")
    return Window(data, time, windows, partition=partition)


def _windows(kind: Any, size: int, step: int, binder: Binder, node: Node) -> Windows:
    if step <= 0 or size <= 0:
        raise binder.error(node, f"the size and the step of {kind} must be positive")
    return Windows(kind, size, step)


def _interval_ms(binder: Binder, node: Node) -> int:
    unit, count = interval_of(binder, node) if isinstance(node, exp.Interval) else ("", 0)
    if not unit or unit in MONTHS or count % 1000:
        raise binder.error(node, "windows take intervals of constant length, such as INTERVAL '10' MINUTES")
    return count // 1000


# -- GROUP BY ----------------------------------------------------------------------------------------------------------


def grouped_window(tree: Node, below: Plan, binder: Binder) -> tuple[Plan, Mapping[str, Expression]]:
    """The plan of the rows in the windows of GROUP BY, if it has any, and what calls then mean in the query, by their text.

    In GROUP BY, the window's columns replace the window. Raises SqlError.
    """
    group = tree.args.get("group")
    found = [node for node in ([] if group is None else group.expressions) if _name(node) in ("TUMBLE", "HOP", "SESSION")]
    if not found:
        return below, {}
    call, function = found[0], _name(found[0])
    if len(found) > 1:
        raise binder.error(found[-1], "a query has one window")
    time, windows = _arguments(call, function, binder)
    partition = tuple(binder.bind(node) for node in group.expressions if node is not call) if function == "SESSION" else ()
    plan = window_of(below, time, windows, lambda problem: binder.error(call, problem), partition)
    columns = {f"{function}_{role}": field for role, field in zip(("START", "END", "ROWTIME"), plan.added, strict=True)}
    named = {name: _renamed(call, name) for name in columns}
    used = {node.sql() for node in tree.find_all(exp.Anonymous)}
    keys = [node for name, node in named.items() if not name.endswith("ROWTIME") or node.sql() in used]
    at = group.expressions.index(call)
    group.set("expressions", [*group.expressions[:at], *keys, *group.expressions[at + 1 :]])
    return plan, {named[name].sql(): ms_column(field) for name, field in columns.items()}


def _arguments(call: Node, function: str, binder: Binder) -> tuple[Column, Windows]:
    time, *intervals = call.expressions
    count = 2 if function == "HOP" else 1
    if not isinstance(time, exp.Column) or len(intervals) != count:
        raise binder.error(call, f"{function} in GROUP BY takes the event time and {count} interval{'s' * (count - 1)}")
    column = binder.bind(time)
    if not isinstance(column, Column):
        raise binder.error(time, f"{column} is not event time: joins lose it")
    step, *_, size = (_interval_ms(binder, node) for node in (intervals if count == 2 else intervals * 2))
    return column, _windows(function, size, step, binder, call)


def _name(node: Node) -> str:
    return str(node.this).removeprefix(CALL).upper() if isinstance(node, exp.Anonymous) else ""


def _renamed(call: Node, name: str) -> Node:
    found = call.copy()
    found.set("this", CALL + name)
    return found
