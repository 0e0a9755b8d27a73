"""Compares the definitions that are stored with the state of queries."""

from __future__ import annotations

from typing import Any

from forkpoint.relational.definitions.groups import REMEDY, compare_groups, stored_definition
from forkpoint.relational.definitions.rows import compare_rows, stored_rows


def compare(saved: Any, wanted: Any) -> tuple[str, str]:
    """Why state with one definition cannot serve a query with the other ("" if it can), and what the change does."""
    if saved == wanted:
        return "", ""
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
