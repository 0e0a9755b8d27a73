"""Queries that read no table: SELECT without FROM has one row, VALUES the rows that it lists."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from forkpoint.relational.expressions import Expression
from forkpoint.relational.plan import ONE_ROW, Plan, Unnest
from forkpoint.relational.precision import converted
from forkpoint.relational.types import common_type
from forkpoint.sql.binding.expressions import Binder


def rows_of_values(tree: Any, binder: Binder) -> Plan:
    """The elements of an array of rows. Raises SqlError."""
    rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in tree.expressions]
    for row in rows:
        if len(row) != len(rows[0]):
            raise binder.error(row[0], f"a row of VALUES has {len(row)} columns, the first one {len(rows[0])}")
    found = [[binder.bind(node) for node in row] for row in rows]
    columns = [_of_one_type([row[at] for row in found], [row[at] for row in rows], binder) for at in range(len(rows[0]))]
    records = [binder.call("ROW", tree, list(row)) for row in zip(*columns, strict=True)]
    array = binder.call("ARRAY", tree, records)
    return Unnest(ONE_ROW, array, tuple(f"EXPR${at}" for at in range(len(columns))))


def _of_one_type(values: list[Expression], nodes: list[Any], binder: Binder) -> list[Expression]:
    of = values[0].type
    for value, node in zip(values, nodes, strict=True):
        common = common_type([of, value.type])
        if common is None:
            raise binder.error(node, f"this is {value.type.label}, but other rows of VALUES have {of.label} there; CAST one")
        of = common
    return [converted(value, of) for value in values]
