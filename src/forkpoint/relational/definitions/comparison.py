"""Compares the definitions that are stored with the state of queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forkpoint.relational.definitions.groups import DIFFERENCE, REMEDY, compare_groups, stored_definition
from forkpoint.relational.definitions.rows import compare_rows, stored_rows
from forkpoint.relational.functions.user import is_user


def compare(saved: Any, wanted: Any) -> tuple[str, str]:
    """Why state with one definition cannot serve a query with the other ("" if it can), and what the change does."""
    if saved == wanted:
        return "", ""
    refused, change = _compared(saved, wanted)
    before, after = (dict(_called(of)) for of in (saved, wanted))
    for name in sorted(before):
        if name in after and before[name] != after[name] and refused:
            return f"function {name} was version {before[name]} and is version {after[name]}: {refused}", ""
        if change == DIFFERENCE and before[name] != after.get(name):
            now = f"is version {after[name]} now" if name in after else "is not called any more"
            return f"its result was computed by function {name}, version {before[name]}, which {now}; {REMEDY}", ""
    return refused, change


def _compared(saved: Any, wanted: Any) -> tuple[str, str]:
    if saved is None or wanted is None:
        return "it belongs to a query on one side only; give the operator or the table another name", ""
    if "node" in saved and "node" in wanted:
        return compare_rows(stored_rows(saved), stored_rows(wanted), saved["side"])
    if "latest" in saved and "latest" in wanted:
        kept, keep = (", ".join(each["latest"]) for each in (saved, wanted))
        return f"its rows were kept by the primary key {kept} and would be kept by {keep}; {REMEDY}", ""
    if "aggregate" in saved and "aggregate" in wanted:
        return compare_groups(stored_definition(saved), stored_definition(wanted))
    return f"it belongs to another kind of query; {REMEDY}", ""


def _called(definition: Any) -> Iterator[tuple[str, str]]:
    """The user's functions that a stored definition calls, and their versions."""
    match definition:
        case {"function": str(function)} if is_user(function):
            name, _, version = function.partition("@")
            yield name, version
    parts = definition.values() if isinstance(definition, dict) else definition
    for part in parts if isinstance(definition, dict | list | tuple) else ():
        yield from _called(part)
