"""Expressions with Python's meaning over the columns of elements.

They are not SQL's expressions: SQL has NULL where Python raises, wraps integers, and rounds quotients differently. They are never
saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from forkpoint.types import TypeInformation
from forkpoint.types.kinds.containers import present

Kind = Literal["int", "float", "bool", "str", "other"]
"""The Python class of the values. A column of another class can only be passed on."""

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("byte", "short", "int", "long"), "int"),
    **dict.fromkeys(("float", "double"), "float"),
    **dict.fromkeys(("string", "char"), "str"),
    "boolean": "bool",
}
BINDING = {"if": 0, "or": 1, "and": 2, "not": 3, **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), 4)}
BINDING |= {"|": 5, "^": 6, "&": 7, ">>": 8, **dict.fromkeys("+-", 9), **dict.fromkeys(("*", "/", "//", "%"), 10), "neg": 11}
_ATOM = 12


def kind_of(type: TypeInformation) -> Kind:
    """The kind of a column, which has no nulls if it is computed with."""
    return _KINDS.get(present(type).kind, "other")


@dataclass(frozen=True, eq=False)
class Node:
    """``operation``: ``field``, with the index and name of a column; ``constant``, with its value and text; ``if``, with
    condition, value and alternative; else an operator or function. Equal nodes of a function are one object."""

    operation: str
    kind: Kind
    arguments: tuple[Any, ...]
    size: int = 1

    @property
    def operands(self) -> tuple[Node, ...]:
        return () if self.operation in ("field", "constant") else self.arguments

    @property
    def can_fail(self) -> bool:
        """Whether Python may raise for some operands: a divisor may be 0, and a large int has no float."""
        kinds = [each.kind for each in self.operands]
        if self.operation in ("/", "//", "%"):
            divisor = self.operands[1]
            if divisor.operation != "constant" or not divisor.arguments[0]:
                return True
        turned = self.operation == "float" or ("float" in kinds and self.kind == "float")
        return turned and any(each.kind == "int" and each.operands for each in self.operands)

    @property
    def is_truth(self) -> bool | None:
        """The value of the constants True and False."""
        return self.arguments[0] if self.operation == "constant" and self.kind == "bool" else None

    def __str__(self) -> str:
        return self._text[0]

    def within(self, binding: int) -> str:
        """The text as an operand of an operator that binds so."""
        text, own = self._text
        return text if own > binding else f"({text})"

    @cached_property
    def _text(self) -> tuple[str, int]:
        """As in Python, and how tightly it binds."""
        operation, arguments = self.operation, self.arguments
        if operation == "field":
            return arguments[1], _ATOM
        if operation == "constant":
            return arguments[1], _ATOM
        if operation == "if":
            return self._choice
        binding = BINDING.get(operation)
        if binding is None:
            return f"{operation}({', '.join(map(str, arguments))})", _ATOM
        if len(arguments) == 1:
            return ("not " if operation == "not" else "-") + arguments[0].within(binding - 1), binding
        return f"{arguments[0].within(binding - (binding > 4))} {operation} {arguments[1].within(binding)}", binding

    @property
    def _choice(self) -> tuple[str, int]:
        condition, value, other = self.arguments
        for word, first, second in (("and", condition is other, value), ("or", condition is value, other)):
            if first:
                binding = BINDING[word]
                return f"{condition.within(binding - 1)} {word} {second.within(binding)}", binding
        return f"{value.within(0)} if {condition.within(0)} else {other.within(-1)}", 0


def parts_of(nodes: Iterable[Node]) -> Iterator[Node]:
    """Expressions, and all that they consist of."""
    for node in nodes:
        yield node
        yield from parts_of(node.operands)


def fields_of(nodes: Iterable[Node]) -> Iterator[int]:
    """The columns that expressions read, by index."""
    return (node.arguments[0] for node in parts_of(nodes) if node.operation == "field")


def is_field(node: Node, column: int) -> bool:
    return node.operation == "field" and node.arguments[0] == column
