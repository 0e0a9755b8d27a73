"""What a type makes of a value that is handed over.

A value that nothing can change and that is exactly what the type says stays the object it is; of any other the type makes
one of its own, as encoding and decoding would, or refuses it. Tests of immutable types are compiled, one expression a type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from itertools import count
from operator import is_
from typing import Any

from forkpoint.types.row import Row

Convert = Callable[[Any], Any]
ConvertAll = Callable[[list[Any]], list[Any]]


class Source:
    """A Python expression under construction: the objects that it names, and names for what it keeps in between."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._numbers = count()

    def bind(self, value: object) -> str:
        """Return a name that stands for this object."""
        name = f"_{next(self._numbers)}"
        self.names[name] = value
        return name

    def variable(self) -> str:
        """Return a name for a value of the expression's own."""
        return f"v{next(self._numbers)}"

    def once(self, value: str) -> tuple[str, str]:
        """Return what to write for an expression the first time, and a name for it from then on."""
        if value.isidentifier():
            return value, value
        name = self.variable()
        return f"({name} := {value})", name

    def compiled(self, expression: str) -> Any:
        """Return the function of `value` that evaluates the expression."""
        return eval(f"lambda value: {expression}", self.names)

    def defined(self, text: str) -> Any:
        """Return the only function that the text defines."""
        found: dict[str, Any] = {}
        exec(text, self.names, found)
        (function,) = found.values()
        return function


def keeping(source: Source, test: str, remake: Convert) -> Convert:
    """Return what hands on the values that pass the test, and remakes others."""
    return source.compiled(f"value if {test} else {source.bind(remake)}(value)")  # type: ignore[no-any-return]


def converted(values: list[Any], convert: Convert) -> list[Any]:
    """Return the converted values; the list itself if all of them stay the same objects."""
    results = list(map(convert, values))
    return values if all(map(is_, values, results)) else results


def unless_same(build: Convert, fixed: Set[type], convert_all: ConvertAll) -> Convert:
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


def collections(fixed: Set[type], convert_all: ConvertAll) -> dict[type, Convert]:
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
    """Whether UTF-8 has bytes for the text: a lone surrogate has none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def all_encodable(texts: Iterable[str]) -> bool:
    """Whether `encodable` holds for all of them."""
    text = "".join(texts)
    return text.isascii() or encodable(text)
