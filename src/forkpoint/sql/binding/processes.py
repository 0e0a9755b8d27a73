"""Binds process table functions: ``f(TABLE t PARTITION BY k, on_time => DESCRIPTOR(ts), uid => 'x')`` in FROM."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from forkpoint.relational.event_time import rowtimes, why_not_rowtime
from forkpoint.relational.expressions import Item, Literal
from forkpoint.relational.functions.user import UserFunction
from forkpoint.relational.plan import Plan, Process, is_updating, plain_name
from forkpoint.relational.types import Field
from forkpoint.sql.binding.windows import descriptor
from forkpoint.sql.errors import SqlError, did_you_mean
from forkpoint.sql.tokens import arguments_of

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

    from forkpoint.sql.binding.expressions import Binder
    from forkpoint.sql.binding.table_calls import Calls

    Node = Any

_TIME, _UID = "on_time", "uid"
ROWTIME = "rowtime"
"""The column with the event time of a process function's results."""


@dataclass(frozen=True)
class ProcessCall:
    """A call of a process function. ``data``: the query of its table. ``time``: the column that is event time. ``arguments``: for
    the function itself. ``at``: its offset in the source."""

    function: str
    of: UserFunction
    at: int
    data: Node
    partition: tuple[Token, ...]
    time: Token | None
    uid: Node
    arguments: Mapping[str, Node]


def process_call(calls: Calls, first: Token, function: UserFunction, arguments: list[Token]) -> ProcessCall:
    """Raises SqlError."""
    name = function.name
    use = f"{name}(TABLE t PARTITION BY k, {_TIME} => DESCRIPTOR(ts), {_UID} => 'x')"
    (parameter, data), *more = arguments_of(arguments)
    if not data or data[0].text.upper() not in ("TABLE", "("):
        raise calls.error(first, f"the first argument of {name} is a table: {use}")
    tree, partition = calls.table(data)
    given: dict[str, list[Token]] = {}
    for parameter, value in more:
        if not parameter or parameter in given or not value:
            raise calls.error((value or [first])[0], f"further arguments of {name} have names: {use}")
        given[parameter] = value
    time = None
    if _TIME in given:
        time = descriptor(given.pop(_TIME))
        if time is None:
            raise calls.error(first, f"{_TIME} is given as DESCRIPTOR(column): {use}")
    parsed = {parameter: calls.parsed(value) for parameter, value in given.items()}
    return ProcessCall(name, function, calls.at(first), tree, partition, time, parsed.pop(_UID, None), parsed)


def bind_process(call: ProcessCall, data: Plan, binder: Binder) -> Process:
    """What a process function emits for the rows of a table. Raises SqlError."""
    name, function = call.function, call.of

    def error(problem: str, token: Token | None = None) -> SqlError:
        return binder.scope.source.error(call.at if token is None else binder.offset + token.start, problem)

    if is_updating(data):
        raise error(f"{name} takes rows that are only added, but its table also changes rows that it had before")
    keyed = "partition" in function.can
    if keyed != bool(call.partition):
        wanted = "is a KeyedProcessFunction; add PARTITION BY" if keyed else "is a ProcessFunction; leave out PARTITION BY"
        raise error(f"{name} {wanted}: {name}(TABLE t{' PARTITION BY k' * keyed})")
    fields = {field.name: field for field in data.schema}
    for token in call.partition:
        if token.text not in fields:
            raise error(f"there is no column {token.text!r}; {did_you_mean(token.text, fields)}", token)
        if fields[token.text].type.is_nested:
            raise error(f"PARTITION BY takes no {fields[token.text].type.name} yet; partition by its parts", token)
    partition = tuple(token.text for token in call.partition)
    time = _time_of(call, data, error)
    results = [fields[each] for each in partition] + list(function.result.fields) + ([] if time is None else [time])
    names = [field.name for field in results]
    if len(set(names)) < len(names):
        twice = next(each for each in names if names.count(each) > 1)
        raise error(f"{name} has two columns {twice!r}: those of PARTITION BY come first; rename one in a subquery")
    uid = name if call.uid is None else _literal(call.uid, _UID, binder).value
    if not isinstance(uid, str) or not uid:
        raise error(f"{_UID} is a text: {_UID} => 'x'")
    arguments = {each: _literal(node, each, binder) for each, node in call.arguments.items()}
    try:
        inspect.signature(function.body if isinstance(function.body, type) else lambda: None).bind(**arguments)
    except TypeError as problem:
        hint = "" if isinstance(function.body, type) else "; register its class, not an instance, to pass arguments"
        raise error(f"{name}: {problem}{hint}") from None
    binder.scope.functions.called[function.identity] = function
    named = tuple(Item(each, arguments[each]) for each in sorted(arguments))
    return Process(data, function.identity, partition, tuple(results), uid, "" if time is None else ROWTIME, named)


def _time_of(call: ProcessCall, data: Plan, error: Callable[[str, Token], SqlError]) -> Field | None:
    """The column with the event time of the results."""
    if call.time is None:
        return None
    column = call.time.text
    field = next((field for field in data.schema if field.name == column), None)
    if field is None:
        known = did_you_mean(column, (each.name for each in data.schema))
        raise error(f"there is no column {column!r}; {known}", call.time)
    if column not in rowtimes(data):
        raise error(f"column {plain_name(column)!r} is not event time: {why_not_rowtime(data, column)}", call.time)
    return Field(ROWTIME, field.type)


def _literal(node: Node, name: str, binder: Binder) -> Literal:
    found = None if node.find(exp.Column) else binder.bind(node)
    if not isinstance(found, Literal):
        raise binder.error(node, f"argument {name!r} is a constant")
    return found
