"""Compares the definitions that are stored with the state of queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forkpoint.patterns.changes import compare as compare_patterns
from forkpoint.relational.definitions.groups import DIFFERENCE, OTHERWISE, REMEDY, compare_groups, stored_definition
from forkpoint.relational.definitions.rows import compare_rows, stored_rows
from forkpoint.relational.functions.user import is_user, parts_of


def compare(saved: Any, wanted: Any, functions: frozenset[str] = frozenset()) -> tuple[str, str]:
    """Why state with one definition cannot serve a query with the other ("" if it can), and what the change does. ``functions``:
    the user's that the program has."""
    if saved == wanted:
        return "", ""
    refused, change = _compared(saved, wanted)
    has = dict(map(parts_of, functions)) | dict(_called(wanted))
    for name, version in sorted(_called(saved)):
        changed = name in has and has[name] != version
        if changed and refused:
            return f"function {name} was version {version} and is version {has[name]}: {refused}", ""
        if change == DIFFERENCE and has.get(name) != version:
            now = (
                f"is version {has[name]} now" if changed else "is not registered any more: register it, even if nothing calls it"
            )
            return f"its result was computed by function {name}, version {version}, which {now}; or {OTHERWISE}", ""
    return refused, change


def missing_functions(definition: Any, functions: frozenset[str]) -> str:
    """Why a program with these functions cannot compute what a query with this definition shows of its state; "" if it can."""
    if "aggregate" in definition:  # keys, and what accumulators have read, are in the state
        computed = [{"function": call["function"]} for call in definition["aggregate"]["calls"]]
    else:
        node = definition["node"]
        computed = [node[name] for name in node.keys() - {"input", "left", "right", "keys", "partition"}]
    parts = [definition["view"], *computed]
    has = dict(map(parts_of, functions))
    missing = sorted((name, version) for name, version in set(_called(parts)) if has.get(name) != version)
    return (
        ""
        if not missing
        else (
            "the result of the old query was computed by function "
            + " and ".join(f"{name}, version {v}" for name, v in missing)
            + f", which the program does not have: register it, even if nothing calls it; or {OTHERWISE}"
        )
    )


def _compared(saved: Any, wanted: Any) -> tuple[str, str]:
    if saved is not None and wanted is not None and "pattern" in saved and "pattern" in wanted:
        return "", compare_patterns(saved, wanted)
    if saved is not None and wanted is not None and "match" in saved and "match" in wanted:
        return _compared_matches(saved, wanted), ""
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


def _compared_matches(saved: Any, wanted: Any) -> str:
    """Measures may change, as far as the rows have their columns; matches that were shown are final."""
    if saved["match"] != wanted["match"]:
        return f"its partial matches are of another pattern, or of other conditions; {REMEDY}"
    if "numbered" in wanted and "numbered" not in saved:
        return f"its matches were not counted so far, so MATCH_NUMBER() is not known; {REMEDY}"
    missing = ", ".join(sorted(set(wanted["columns"]) - set(saved["columns"])))
    return f"the rows of its partial matches lack {missing}; {REMEDY}" if missing else ""


def _called(definition: Any) -> Iterator[tuple[str, str]]:
    """The user's functions that a stored definition calls, and their versions."""
    match definition:
        case {"function": str(function)} if is_user(function):
            yield parts_of(function)
    parts = definition.values() if isinstance(definition, dict) else definition
    for part in parts if isinstance(definition, dict | list | tuple) else ():
        yield from _called(part)
