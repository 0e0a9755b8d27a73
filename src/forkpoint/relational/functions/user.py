"""User-defined functions: calls of Python in expressions.

A call names its function and the function's version, as in ``slug@1``. The text and the stored form of an expression have nothing
else of it, so a version stands for what the function computes. Operators that evaluate such calls have the functions
themselves (``operators.calling``) and open them; ``known`` makes them known while the operator runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, is_dataclass
from dataclasses import fields as fields_of
from typing import Any, Literal, Protocol

import msgspec
import pyarrow as pa

from forkpoint.errors import JobFailed
from forkpoint.relational.expressions import Call, Expression
from forkpoint.relational.types import SqlType, widens

Kind = Literal["scalar", "table", "aggregate", "process"]
Form = Literal["general", "pandas", "arrow"]


@dataclass(frozen=True)
class UserFunction:
    """A function by the name that queries have for it. ``inputs``: the types of its arguments (None: any). ``arity``: the numbers
    of arguments that it takes, from and to (None: any). ``result``: of a table function, an ARRAY of ROWs; of a process function,
    a ROW. ``body``: the ScalarFunction, TableFunction, SqlAggregateFunction, or process function or its class. ``form``: what it
    receives and returns. ``accumulator``: the type of an aggregate function's; without one, it is an ARRAY of the arguments.
    ``can``: what else the body can do: "retract" and "merge", or "partition". ``stored``: of a function whose accumulator is any
    value of Python, in BYTES: what has the value without classes of its own."""

    name: str
    version: str
    inputs: tuple[SqlType, ...] | None
    arity: tuple[int, int | None]
    result: SqlType
    body: Any
    form: Form = "general"
    deterministic: bool = True
    kind: Kind = "scalar"
    accumulator: SqlType | None = None
    can: frozenset[str] = frozenset()
    stored: Callable[[Any], Any] | None = None

    @property
    def identity(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class Functions:
    """The functions in reach of a query. ``system``: by name, those that precede SQL's own of the same name. ``find``: the
    others, by name or path. ``called``: all that queries call, and ``places``: where this query calls them, by identity.
    ``database``: the one in which the query looks for names."""

    system: Mapping[str, UserFunction]
    find: Callable[[str], UserFunction | None]
    names: frozenset[str]
    called: dict[str, UserFunction]
    database: str = ""
    places: dict[str, int] = field(default_factory=dict)

    def named(self, name: str, own: Container[str]) -> UserFunction | None:
        """The function that a name, or a path with points, means; None if it is none or one of SQL's ``own``."""
        name = name.lower()
        return self.system.get(name) or (None if name.upper() in own else self.find(name))

    def call(self, function: UserFunction, arguments: Sequence[Expression], at: int = 0) -> Call | str:
        """The call of a function; a text says why there is none. ``at``: its place in the query."""
        self.places.setdefault(function.identity, at)
        self.called[function.identity] = function
        return call_of(function, arguments)


NO_FUNCTIONS = Functions({}, lambda name: None, frozenset(), {})


def is_user(function: str) -> bool:
    """Whether a call's function is a user's."""
    return "@" in function


def parts_of(identity: str) -> tuple[str, str]:
    """A function's name and version."""
    name, _, version = identity.partition("@")
    return name, version


def without_versions(text: str) -> str:
    """The text of an expression without the versions of functions: for names that stay when a function changes."""
    return re.sub(r"@[\w.-]+(?=\()", "", text)


def call_of(function: UserFunction, arguments: Sequence[Expression]) -> Call | str:
    """The call of a function, with its arguments converted to the types that it takes; a text says why there is none."""
    least, most = function.arity
    count = len(arguments)
    if count < least or (most is not None and count > most):
        wanted = str(least) if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        return f"{function.name} takes {wanted} arguments, not {count}"
    converted = list(arguments)
    for at, wanted_type in enumerate(function.inputs or ()):
        given = arguments[at].type
        if not widens(given, wanted_type):
            return f"{function.name} takes {wanted_type.label} as argument {at + 1}, not {given.label}; CAST it"
        if not given.same_values(wanted_type):
            converted[at] = Call("CAST", (arguments[at],), wanted_type.with_null(given.nullable))
    return Call(function.identity, tuple(converted), function.result)


def calls_in(value: Any) -> Iterator[str]:
    """The user functions that expressions call, in a plan, a definition, a tuple of expressions, or an operator's spec."""
    if isinstance(value, tuple | list):
        for each in value:
            yield from calls_in(each)
    elif isinstance(value, msgspec.Struct) and not isinstance(value, SqlType):
        function = getattr(value, "function", "")  # of a call
        if is_user(function):
            yield function
        for name in value.__struct_fields__:
            yield from calls_in(getattr(value, name))
    elif is_dataclass(value):
        for each in fields_of(value):
            yield from calls_in(getattr(value, each.name))


# -- running -----------------------------------------------------------------------------------------------------------


Results = dict[Call, pa.Array]
"""The results of calls for the rows of a batch."""


class Known(Protocol):
    """Opened functions."""

    def get(self, identity: str) -> Any:
        """The function; None if there is none."""

    def results(self, rows: pa.RecordBatch) -> Results:
        """The results that have been computed for these rows."""


_known: ContextVar[Known] = ContextVar("functions")


@contextmanager
def known(functions: Known) -> Iterator[None]:
    """Evaluate calls of these functions."""
    token = _known.set(functions)
    try:
        yield
    finally:
        _known.reset(token)


def known_function(identity: str) -> Any:
    """A function that is known here. Raises JobFailed."""
    found = _known.get().get(identity)
    if found is None:  # of a query that was computed from its input again
        name, version = parts_of(identity)
        raise JobFailed(
            f"the replaced query's result was computed by function {name}, version {version}, which the program does not have; "
            "register it, even if nothing calls it, or write the new query's result into another table"
        )
    return found


def called(call: Call, arguments: Callable[[], Sequence[Any]], rows: pa.RecordBatch) -> pa.Array:
    """The results of a call for rows, which are computed once. ``arguments``: columns, or single values for all rows."""
    known = _known.get().results(rows)
    if call not in known:
        known[call] = known_function(call.function)(call, arguments(), rows.num_rows)
    return known[call]


def taken(rows: pa.RecordBatch, indices: pa.Array) -> pa.RecordBatch:
    """Some of the rows, with the results of calls."""
    found = rows.take(indices)
    functions = _known.get(None)
    if functions is not None:
        functions.results(found).update({call: result.take(indices) for call, result in functions.results(rows).items()})
    return found
