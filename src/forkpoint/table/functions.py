"""Functions of a program that SQL calls, by PyFlink's names."""

from __future__ import annotations

import copy
import functools
import inspect
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from forkpoint.errors import ConfigError, TypeNotSupported, WrongType, one_of
from forkpoint.extras import require
from forkpoint.functions import KeyedProcessFunction, ProcessFunction
from forkpoint.functions.sql import (
    ScalarFunction,
    SqlAggregateFunction,
    TableAggregateFunction,
    TableFunction,
    UserDefinedFunction,
)
from forkpoint.relational.functions.user import Form, Kind, UserFunction
from forkpoint.relational.types import BYTES, SqlType, array_type, row_of
from forkpoint.table.api.expression import Expression, node_of
from forkpoint.table.api.nodes import FunctionCall
from forkpoint.table.api.views import Views, views_in, views_of, with_views, without_views
from forkpoint.table.data_types import DataType, sql_type_of
from forkpoint.types import Row

_FORMS = ("general", "pandas", "arrow")
_MADE_BY: Mapping[Kind, tuple[str, type[Any]]] = {
    "scalar": ("udf", ScalarFunction),
    "table": ("udtf", TableFunction),
    "aggregate": ("udaf", SqlAggregateFunction),
    "process": ("ptf", KeyedProcessFunction),
}
"""By the kind of a function: what makes it, and its class."""


class _Plain(UserDefinedFunction):
    """A plain function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.eval = function


class _OfColumns(UserDefinedFunction):
    """A SqlAggregateFunction of columns: it accumulates all rows of a group at once."""

    def __init__(self, function: SqlAggregateFunction) -> None:
        self._function = function
        self.open, self.close = function.open, function.close  # type: ignore[method-assign]

    def eval(self, *columns: Any) -> Any:
        accumulator = self._function.create_accumulator()
        returned = self._function.accumulate(accumulator, *columns)
        return self._function.get_value(accumulator if returned is None else returned)


@dataclass(frozen=True)
class PythonFunction:
    """A function with what SQL needs to know of it: what ``udf()``, ``udtf()``, ``udaf()`` and ``ptf()`` return."""

    kind: Kind
    given: Any
    input_types: Any
    result_type: Any
    accumulator_type: Any
    form: Form
    deterministic: bool | None
    name: str
    version: str
    columns: tuple[str, ...] = ()

    def alias(self, *names: str) -> PythonFunction:
        """The function, whose columns in ``join_lateral``, ``flat_map`` and ``aggregate`` have these names."""
        return replace(self, columns=names)

    def of_rows(self, names: Sequence[str]) -> PythonFunction:
        """The function, which takes a Row of columns with these names; over pandas a DataFrame, over Arrow a table."""
        make = {"general": _row, "pandas": _frame, "arrow": _table}[self.form]
        return replace(self, given=_with_rows(self.given, functools.partial(make, tuple(names))), input_types=None)

    def __call__(self, *args: Any) -> Expression:
        """A call in an expression: ``function(col("a"), 1)``."""
        return Expression(FunctionCall(self, tuple(map(node_of, args))))

    def bound(self, name: str | None = None) -> UserFunction:
        """The function under a name in SQL, by default its own. Raises ConfigError."""
        if self.kind == "process":
            return self._process((name or self.name).lower())
        given = self.input_types
        types = None if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)
        inputs = None if types is None else tuple(self._type("input_types", of) for of in types)
        body = self.given if isinstance(self.given, UserDefinedFunction) else _Plain(self.given)
        deterministic = body.is_deterministic() if self.deterministic is None else self.deterministic
        found = UserFunction(
            (name or self.name).lower(),
            self.version,
            inputs,
            _arity(_method(body)) if inputs is None else (len(inputs), len(inputs)),
            self._rows() if self.kind == "table" else self._result(body),
            body,
            self.form,
            deterministic,
            self.kind,
        )
        return self._aggregate(found) if self.kind == "aggregate" else found

    def _process(self, name: str) -> UserFunction:
        if self.result_type is None:
            raise self._error("it has no result type; give result_type, as in 'ROW<total BIGINT>'")
        of = self._type("result_type", self.result_type)
        result = of if of.name == "ROW" else row_of(["f0"], [of])
        cls = self.given if isinstance(self.given, type) else type(self.given)
        can = frozenset({"partition"} if issubclass(cls, KeyedProcessFunction) else ())
        return UserFunction(name, self.version, None, (1, None), result, self.given, kind="process", can=can)

    def _aggregate(self, found: UserFunction) -> UserFunction:
        body = found.body
        if not found.deterministic:
            raise self._error("an aggregate function is deterministic: what has changed is found in its results")
        if self.form != "general":
            body = _OfColumns(body) if isinstance(body, SqlAggregateFunction) else body
            return replace(found, body=body, can=frozenset({"retract", "merge"}))
        if not isinstance(body, SqlAggregateFunction):
            raise self._error("a function of rows is a SqlAggregateFunction; a plain function has func_type='pandas' or 'arrow'")
        of = self.accumulator_type or body.get_accumulator_type()
        if of is None:
            raise self._error("it has no accumulator type; give accumulator_type, as in 'ROW<n BIGINT, total DOUBLE>'")
        methods = {"retract": SqlAggregateFunction.retract, "merge": SqlAggregateFunction.merge}
        can = frozenset(name for name, absent in methods.items() if getattr(type(body), name) is not absent)
        views = views_of(of) if isinstance(of, DataType) else {}
        declared = self._type("accumulator_type", of).with_null()
        first = _first_accumulator(body)
        own_views = views_in(first)
        misfit = _misfit(first, declared) or ("it has views" if own_views.keys() - views.keys() else "")
        if misfit:
            warnings.warn(
                f"udaf {self.name!r}: its accumulator is not of its accumulator_type {declared.label} ({misfit}), so state has "
                "it as bytes, whose parts `forkpoint state get` cannot show",
                stacklevel=2,
            )
            views, declared = own_views, BYTES
        body = _with_views(body, views) if views else body
        stored = functools.partial(without_views, views=views) if misfit else None
        return replace(found, body=body, accumulator=declared, can=can, stored=stored)

    def _result(self, body: Any) -> SqlType:
        given = self.result_type
        if given is None and isinstance(body, SqlAggregateFunction):
            given = body.get_result_type()
        if given is not None:
            found = self._type("result_type", given)
            return _rows_of([found]) if isinstance(body, TableAggregateFunction) else found
        called = body.get_value if isinstance(body, SqlAggregateFunction) else body.eval
        try:
            hint = typing.get_type_hints(_plain(called)).get("return")
        except Exception as error:
            raise self._error(f"its type hints cannot be read ({error}); give result_type") from error
        if hint is None:
            raise self._error(f"it has no result type; give result_type, as in @{_MADE_BY[self.kind][0]}(result_type='BIGINT')")
        return self._type("the type hint of its result", hint).with_null()

    def _rows(self) -> SqlType:
        """The rows of a table function."""
        if self.result_type is None:
            raise self._error("it has no result types; give result_types, as in @udtf(result_types=['STRING', 'INT'])")
        given = self.result_type if isinstance(self.result_type, list | tuple) else [self.result_type]
        return _rows_of([self._type("result_types", of) for of in given])

    def _error(self, problem: str) -> ConfigError:
        return ConfigError(f"{_MADE_BY[self.kind][0]} {self.name!r}: {problem}")

    def _type(self, what: str, given: Any) -> SqlType:
        try:
            return sql_type_of(given).plain  # values are the function's own
        except ConfigError as error:
            raise self._error(f"{what}: {error}") from error


def _rows_of(types: list[SqlType]) -> SqlType:
    """Rows of columns of these types; a single ROW is that of the rows."""
    of_row = len(types) == 1 and types[0].name == "ROW"
    return array_type(types[0] if of_row else row_of([f"f{at}" for at in range(len(types))], types))


def _row(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return Row.of(names, values)


def _frame(names: tuple[str, ...], columns: tuple[Any, ...]) -> Any:
    """The columns as one frame; a ROW's fields are columns of it, as in PyFlink."""
    import pandas as pd

    named = zip(names, columns, strict=True)
    return pd.concat([each if isinstance(each, pd.DataFrame) else each.rename(name) for name, each in named], axis=1)


def _table(names: tuple[str, ...], columns: tuple[Any, ...]) -> Any:
    return pa.RecordBatch.from_arrays(list(columns), list(names))


def _with_rows(given: Any, make: Callable[[tuple[Any, ...]], Any]) -> Any:
    """A function, or a copy of an instance, whose methods take one row instead of values."""
    if not isinstance(given, UserDefinedFunction):
        return functools.partial(_called_with_row, given, 0, make)
    body = copy.copy(given)
    of_values = [(name, at) for name, at in (("eval", 0), ("accumulate", 1), ("retract", 1)) if hasattr(given, name)]
    for name, at in of_values:
        method = functools.partial(getattr(type(given), name), body)
        setattr(body, name, functools.partial(_called_with_row, method, at, make))
    return body


def _with_views(given: SqlAggregateFunction, views: Views) -> SqlAggregateFunction:
    """A copy of an instance, whose methods get accumulators with views."""
    body = copy.copy(given)
    for name in ("accumulate", "retract", "get_value"):
        method = vars(given).get(name) or functools.partial(getattr(type(given), name), body)
        setattr(body, name, functools.partial(_called_with_views, method, views))
    merge = functools.partial(type(given).merge, body)
    body.merge = functools.partial(_merged_with_views, merge, views)  # type: ignore[method-assign]
    return body


def _first_accumulator(body: SqlAggregateFunction) -> Any:
    """An empty accumulator; None if the function has none before open()."""
    try:
        return body.create_accumulator()
    except Exception:
        return None


def _misfit(accumulator: Any, declared: SqlType) -> str:
    """Why an accumulator is not of its type, which PyFlink reads for views only; "" if it is."""
    try:
        declared.stream_type.to_arrow([accumulator])
    except TypeNotSupported as error:
        return str(error)
    return ""


def _called_with_views(method: Callable[..., Any], views: Views, accumulator: Any, *values: Any) -> Any:
    return method(with_views(accumulator, views), *values)


def _merged_with_views(method: Callable[..., Any], views: Views, accumulator: Any, accumulators: Any) -> Any:
    return method(with_views(accumulator, views), [with_views(each, views) for each in accumulators])


def _called_with_row(method: Callable[..., Any], before: int, make: Callable[[tuple[Any, ...]], Any], *values: Any) -> Any:
    """``before``: how many arguments precede the row's values."""
    return method(*values[:before], make(values[before:]))


def _method(body: Any) -> Any:
    """What is called with arguments."""
    if not isinstance(body, SqlAggregateFunction):
        return body.eval
    return functools.partial(body.accumulate, None)  # which takes an accumulator before them


def _plain(called: Any) -> Any:
    """What of a callable has the signature and the type hints."""
    if isinstance(called, functools.partial):
        return called.func
    return called if inspect.isroutine(called) else type(called).__call__


def _arity(called: Any) -> tuple[int, int | None]:
    """The numbers of arguments that a callable takes, from and to (None: any)."""
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):  # of a built-in
        return 0, None
    by_position = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    least = sum(each.default is each.empty for each in by_position)
    return least, None if any(each.kind is each.VAR_POSITIONAL for each in parameters) else len(by_position)


def udf(
    f: Callable[..., Any] | ScalarFunction | None = None,
    input_types: Any = None,
    result_type: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: Literal["general", "pandas", "arrow"] = "general",
    version: str = "1",
) -> Any:
    """A function or a ScalarFunction as a function of SQL; without ``f`` a decorator.

    Types are texts of SQL or ``DataTypes``; without ``result_type`` the type hint of the result counts. ``func_type``:
    ``"general"`` is called with the values of each row, ``"pandas"`` with a Series and ``"arrow"`` with a pyarrow array for each
    argument, for many rows at once. ``deterministic``: False if equal arguments may have different results.

    ``version``: change it if the function computes something else, and saved state depends on it. Raises ConfigError.
    """
    return _made("scalar", f, input_types, result_type, None, func_type, deterministic, name, version)


def udtf(
    f: Callable[..., Any] | TableFunction | None = None,
    input_types: Any = None,
    result_types: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    version: str = "1",
) -> Any:
    """A function or a TableFunction as a table function of SQL; without ``f`` a decorator. ``result_types``: of the columns, or a
    ROW. See ``udf()``. Raises ConfigError."""
    return _made("table", f, input_types, result_types, None, "general", deterministic, name, version)


def udaf(
    f: Callable[..., Any] | SqlAggregateFunction | None = None,
    input_types: Any = None,
    result_type: Any = None,
    accumulator_type: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: Literal["general", "pandas", "arrow"] = "general",
    version: str = "1",
) -> Any:
    """A SqlAggregateFunction as an aggregate function of SQL; without ``f`` a decorator.

    ``func_type``: with ``"pandas"`` and ``"arrow"``, also a function of all values of a group, as columns, which are kept for
    that. See ``udf()``. Raises ConfigError.
    """
    return _made("aggregate", f, input_types, result_type, accumulator_type, func_type, deterministic, name, version)


def udtaf(
    f: TableAggregateFunction | None = None,
    input_types: Any = None,
    result_type: Any = None,
    accumulator_type: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    version: str = "1",
) -> Any:
    """A TableAggregateFunction for ``flat_aggregate``; without ``f`` a decorator. ``result_type``: of a row. See ``udaf()``.
    Raises ConfigError."""
    return _made("aggregate", f, input_types, result_type, accumulator_type, "general", deterministic, name, version)


def ptf(
    f: ProcessFunction[Any, Any] | KeyedProcessFunction[Any, Any, Any] | type[Any] | None = None,
    result_type: Any = None,
    name: str | None = None,
    version: str = "1",
) -> Any:
    """A process function as a process table function of SQL; without ``f`` a decorator.

    It gets the rows of a table as Rows, and emits rows of ``result_type``. A KeyedProcessFunction has state and timers for each
    value of PARTITION BY. Of a class, each call in SQL makes an instance, with the call's further arguments. Raises ConfigError.
    """
    return _made("process", f, None, result_type, None, "general", True, name, version)


def _made(
    kind: Kind,
    f: Any,
    inputs: Any,
    result: Any,
    accumulator: Any,
    form: str,
    deterministic: bool | None,
    name: str | None,
    version: str,
) -> Any:
    if f is None:
        return lambda given: _made(kind, given, inputs, result, accumulator, form, deterministic, name, version)
    own, (what, of) = name or getattr(f, "__name__", None) or type(f).__name__, _MADE_BY[kind]
    if isinstance(f, type) and issubclass(f, UserDefinedFunction):
        raise ConfigError(f"{what} {own!r}: {own} is a class; give an instance, {own}()")
    process = issubclass(f if isinstance(f, type) else type(f), KeyedProcessFunction | ProcessFunction)
    if not (process if kind == "process" else isinstance(f, of) or (callable(f) and not isinstance(f, UserDefinedFunction))):
        raise WrongType(f"{what}: {f!r} is neither a function nor a {of.__name__}")
    chosen: Form = one_of(f"{what} {own!r}: func_type", form, _FORMS)
    if chosen == "pandas":
        require("pandas", f"{what}(func_type='pandas')")
    if not version or not all(sign.isalnum() or sign in "._-" for sign in version):
        raise ConfigError(f"{what} {own!r}: version {version!r} has other signs than letters, digits and ._-")
    return PythonFunction(kind, f, inputs, result, accumulator, chosen, deterministic, own, version)


def as_python_function(given: Any) -> PythonFunction:
    """What ``create_temporary_function`` accepts: a function made by ``udf()`` and the like, one with type hints, or an
    aggregate function that knows its types. Raises ConfigError."""
    if isinstance(given, PythonFunction):
        return given
    found: PythonFunction = udaf(given) if isinstance(given, SqlAggregateFunction) else udf(given)
    return found
