"""Expressions as a loop in Python over the elements of one key, for keys with so many elements that columns do not help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forkpoint.runtime.expressions.tree import Node

Loop = Callable[[Sequence[Any], Sequence[Sequence[Any]]], list[list[Any]]]
"""From the states before, and lists of what is known of each element, to the states after each element: a list for each state.
Raises what the expressions raise."""

_CALLS = ("abs", "len", "int", "float", "str")


def loop(new: Mapping[int, Node], known: Sequence[Node]) -> Loop:
    """``new``: the expression of each state, by its column; ``known``: the expressions that are known of each element."""
    constants: dict[str, Any] = {}
    states = [f"s{column}" for column in new]
    elements = [f"x{number}" for number in range(len(known))]
    names = dict(zip(known, elements, strict=True))

    def text(node: Node) -> str:
        if node in names:
            return names[node]
        operation, arguments = node.operation, node.arguments
        if operation == "field":
            return f"s{arguments[0]}"
        if operation == "constant":
            constants[f"c{len(constants)}"] = arguments[0]
            return f"c{len(constants) - 1}"
        parts = list(map(text, arguments))
        if operation == "if":
            return f"({parts[1]} if {parts[0]} else {parts[2]})"
        if operation in _CALLS:
            return f"{operation}({parts[0]})"
        if operation in ("startswith", "endswith"):
            return f"{parts[0]}.{operation}({parts[1]})"
        if len(parts) == 1:
            return f"({'not ' if operation == 'not' else '-'}{parts[0]})"
        return f"({parts[0]} {operation} {parts[1]})"

    now = ", ".join(map(text, new.values()))
    body = "\n".join(
        [
            "def run(before, known):",
            f"    {', '.join(states)}, = before",
            *(f"    of_{state} = []; add_{state} = of_{state}.append" for state in states),
            f"    for {', '.join(elements)}, in zip(*known):" if known else "    for _ in known[0]:",
            f"        {', '.join(states)}, = {now},",
            *(f"        add_{state}({state})" for state in states),
            f"    return [{', '.join(f'of_{state}' for state in states)}]",
        ]
    )
    scope: dict[str, Any] = dict(constants)
    exec(body, scope)  # of names and operators only
    made: Loop = scope["run"]
    return made
