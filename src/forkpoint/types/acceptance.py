"""Accepting values from user code: checking them against a type, and making them independent.

A value that is immutable and exactly of the type is accepted as the same object. Any other is coerced to what encoding and
decoding would return, or refused. The tests of immutable types are compiled, into one expression per type.
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
    """A Python expression under construction, with the objects that it refers to."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._numbers = count()

    def bind(self, value: object) -> str:
        """Return a name for this object."""
        name = f"_{next(self._numbers)}"
        self.names[name] = value
        return name

    def variable(self) -> str:
        """Return the name of a new variable."""
        return f"v{next(self._numbers)}"

    def once(self, value: str) -> tuple[str, str]:
        """Return the text that evaluates an expression, and the name of its result from then on."""
        if value.isidentifier():
            return value, value
        name = self.variable()
        return f"({name} := {value})", name

    def compiled(self, expression: str) -> Any:
        """Return the function of `value` that evaluates the expression."""
        return eval(_code(f"lambda value: {expression}", "eval"), self.names)

    def defined(self, text: str) -> Any:
        """Return the only function that the text defines."""
        found: dict[str, Any] = {}
        exec(_code(text, "exec"), self.names, found)
        (function,) = found.values()
        return function


@lru_cache(maxsize=4096)
def _code(text: str, mode: str) -> CodeType:
    """Compiling takes milliseconds, and the operators of a program, its subtasks and its epochs have few texts between them."""
    return compile(text, "<forkpoint>", mode)


def converted(values: list[Any], convert: Convert) -> list[Any]:
    """Return the converted values; the list itself if all of them stay the same objects."""
    results = list(map(convert, values))
    return values if all(map(is_, values, results)) else results


def unless_same(build: Convert, fixed: set[type] | frozenset[type], convert_all: ConvertAll) -> Convert:
    """Return what converts an immutable collection: the same object if its parts stay the same, else built of new ones.

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
    """Return how Python's collections and `Row` are converted part by part, by class. See `unless_same`."""
    return {
        tuple: unless_same(tuple, fixed, convert_all),
        frozenset: unless_same(frozenset, fixed, convert_all),
        list: lambda value: convert_all(value[:]),
        set: lambda value: set(convert_all(list(value))),
        dict: lambda value: dict(zip(convert_all(list(value)), convert_all(list(value.values())), strict=True)),
        Row: lambda value: value.with_values(convert_all(list(value))),
    }


def encodable(text: str) -> bool:
    """Whether the text can be encoded in UTF-8: lone surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def all_encodable(texts: Iterable[str]) -> bool:
    """`encodable` for many texts at once."""
    text = "".join(texts)
    return text.isascii() or encodable(text)
