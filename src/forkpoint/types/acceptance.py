"""Accepts values from user code: checks them against a type, and makes them independent.

Accepts an immutable value of exactly the type as the same object. Coerces any other value to the result of encoding and
decoding it, or refuses it. Compiles the tests of immutable types to one expression per type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import count
from operator import is_
from types import CodeType
from typing import Any

from forkpoint.types.kinds.row import Row

Convert = Callable[[Any], Any]
ConvertAll = Callable[[list[Any]], list[Any]]


class Source:
    """Builds a Python expression, with the objects that it refers to."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._numbers = count()

    def bind(self, value: object) -> str:
        """Return a name for an object."""
        name = f"_{next(self._numbers)}"
        self.names[name] = value
        return name

    def variable(self) -> str:
        """Return the name of a new variable."""
        return f"v{next(self._numbers)}"

    def once(self, value: str) -> tuple[str, str]:
        """Return text that evaluates an expression, and the name of its result after that."""
        if value.isidentifier():
            return value, value
        name = self.variable()
        return f"({name} := {value})", name

    def compiled(self, expression: str) -> Any:
        """Return the function of `value` that evaluates the expression."""
        return eval(_code(f"lambda value: {expression}", "eval"), self.names)

    def defined(self, text: str) -> Any:
        """Return the function that the text defines."""
        found: dict[str, Any] = {}
        exec(_code(text, "exec"), self.names, found)
        (function,) = found.values()
        return function


@lru_cache(maxsize=4096)
def _code(text: str, mode: str) -> CodeType:
    """Cached, because compiling takes milliseconds, and the operators, subtasks and epochs of a program share few texts."""
    return compile(text, "<forkpoint>", mode)


def converted(values: list[Any], convert: Convert) -> list[Any]:
    """Return the converted values; the list itself if all objects stay the same."""
    results = list(map(convert, values))
    return values if all(map(is_, values, results)) else results


def unless_same(build: Convert, fixed: set[type] | frozenset[type], convert_all: ConvertAll) -> Convert:
    """Return a converter for an immutable collection: returns the same object if its parts stay the same, else a new one.

    Objects of the classes in ``fixed`` always stay the same.
    """

    def convert(value: Any) -> Any:
        if fixed.issuperset(map(type, value)):
            return value
        parts = list(value)
        results = convert_all(parts)
        return value if results is parts else build(results)

    return convert


def collections(fixed: set[type] | frozenset[type], convert_all: ConvertAll) -> dict[type, Convert]:
    """Return converters for Python's collections and `Row`, by class; they convert the parts. See `unless_same`."""
    return {
        tuple: unless_same(tuple, fixed, convert_all),
        frozenset: unless_same(frozenset, fixed, convert_all),
        list: lambda value: convert_all(value[:]),
        set: lambda value: set(convert_all(list(value))),
        dict: lambda value: dict(zip(convert_all(list(value)), convert_all(list(value.values())), strict=True)),
        Row: lambda value: value.with_values(convert_all(list(value))),
    }


def encodable(text: str) -> bool:
    """Whether UTF-8 can encode the text: it cannot encode lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def all_encodable(texts: Iterable[str]) -> bool:
    """`encodable` for many texts at once."""
    text = "".join(texts)
    return text.isascii() or encodable(text)
