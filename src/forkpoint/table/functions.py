"""Functions of a program that SQL calls, by PyFlink's names."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from forkpoint.errors import ConfigError, one_of
from forkpoint.functions.sql import ScalarFunction, UserDefinedFunction
from forkpoint.relational.functions.user import Form, UserFunction
from forkpoint.relational.types import SqlType
from forkpoint.table.data_types import sql_type_of
from forkpoint.table.expression import Expression, node_of
from forkpoint.table.nodes import FunctionCall

_FORMS = ("general", "pandas", "arrow")


class _Delegating(ScalarFunction):
    """A plain function as a ScalarFunction."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.eval = function  # type: ignore[method-assign]

    def eval(self, *args: Any) -> Any:
        raise AssertionError


@dataclass(frozen=True)
class PythonFunction:
    """A function with what SQL needs to know of it: what ``udf()`` returns."""

    given: Any
    input_types: tuple[Any, ...] | None
    result_type: Any
    form: Form
    deterministic: bool | None
    name: str
    version: str

    def __call__(self, *args: Any) -> Expression:
        """A call in an expression: ``function(col("a"), 1)``."""
        return Expression(FunctionCall(self, tuple(map(node_of, args))))

    def bound(self, name: str | None = None) -> UserFunction:
        """The function under a name in SQL, by default its own. Raises ConfigError."""
        name = (name or self.name).lower()
        called = self.given.eval if isinstance(self.given, ScalarFunction) else self.given
        result = self._result(called)
        inputs = None if self.input_types is None else tuple(self._type("input_types", of) for of in self.input_types)
        arity = _arity(called) if inputs is None else (len(inputs), len(inputs))
        body = self.given if isinstance(self.given, ScalarFunction) else _Delegating(self.given)
        deterministic = body.is_deterministic() if self.deterministic is None else self.deterministic
        return UserFunction(name, self.version, inputs, arity, result, body, self.form, deterministic)

    def _result(self, called: Any) -> SqlType:
        if self.result_type is not None:
            return self._type("result_type", self.result_type)
        try:
            hint = typing.get_type_hints(_plain(called)).get("return")
        except Exception as error:
            raise ConfigError(f"udf {self.name!r}: its type hints cannot be read ({error}); give result_type") from error
        if hint is None:
            raise ConfigError(f"udf {self.name!r} has no result type; give result_type, as in @udf(result_type='BIGINT')")
        return self._type("the type hint of its result", hint).with_null()

    def _type(self, what: str, given: Any) -> SqlType:
        try:
            return sql_type_of(given)
        except ConfigError as error:
            raise ConfigError(f"udf {self.name!r}: {what}: {error}") from error


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
    if f is None:
        return functools.partial(
            udf,
            input_types=input_types,
            result_type=result_type,
            deterministic=deterministic,
            name=name,
            func_type=func_type,
            version=version,
        )
    own = name or getattr(f, "__name__", None) or type(f).__name__
    if isinstance(f, type) and issubclass(f, UserDefinedFunction):
        raise ConfigError(f"udf {own!r}: {own} is a class; give an instance, {own}()")
    if not callable(f) and not isinstance(f, ScalarFunction):
        raise ConfigError(f"udf: {f!r} is neither a function nor a ScalarFunction")
    form = one_of(f"udf {own!r}: func_type", func_type, _FORMS)
    if not version or not all(sign.isalnum() or sign in "._-" for sign in version):
        raise ConfigError(f"udf {own!r}: version {version!r} has other signs than letters, digits and ._-")
    types = None if input_types is None else tuple(input_types) if isinstance(input_types, list | tuple) else (input_types,)
    return PythonFunction(f, types, result_type, form, deterministic, own, version)


def as_python_function(given: Any) -> PythonFunction:
    """What ``create_temporary_function`` accepts: a function made by ``udf()``, or one with type hints. Raises ConfigError."""
    return given if isinstance(given, PythonFunction) else udf(given)
