"""Queries whose folded changes are compared with DuckDB's answer, counted in one place: those of DuckDB's files, over its tables,
and those of this repository's tests."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pyarrow.parquet as pq
import sqlglot
from sqlglot import exp

from forkpoint.relational.types import Field, Schema, SqlType
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import CreateTable
from suites.changing import Changed, Table, answered, changed, is_arbitrary, keeps_state, result, shape
from suites.meanings import others
from suites.outcomes import KINDS, Outcome, Refused, Rows, outcome
from suites.sqllogic import Tables, ddl, of_query, over_files
from suites.words import in_words_of_flink, text_of

SEEDS = 3
"""So many random tables are tried if a query has no answer for the first ones, such as a sum that overflows."""
_ORDERS = tuple(Field(name, SqlType(of)) for name, of in (("k", "STRING"), ("g", "BIGINT"), ("v", "BIGINT"), ("x", "DOUBLE")))
_ORDER_ROWS = [
    (k, g, v, x) for k in ("a", "b", "", None) for g, v, x in ((0, 1, 0.5), (1, -5, 3.0), (None, 7, None), (1, 0, -0.25))
]
_ORDER_ROWS += [("a", 0, 700, 1024.0), ("b", -5, -600, 0.5), ("ä", 1, 120, 3.0)]
OWN = {"test_sql_queries": "QUERIES", "test_sql_aggregates": "GROUPING_SETS", "test_sql_recompute": "QUERIES"}
"""The lists of queries over orders, by their modules."""


@dataclass(frozen=True)
class Counted:
    """A query. ``text``: without names and numbers. ``how``: what the tables had."""

    outcome: Outcome
    text: str
    keeps_state: bool
    how: str


def compared(words: str, text: str, tree: exp.Query, tables: list[Table], place: tuple[str, int]) -> Counted:
    """A query in Flink's ``words``, compared with DuckDB's answer to ``text``."""
    most = {1: 40, 2: 30, 3: 16}.get(len(list(tree.find_all(exp.Table))), 8)
    for seed in range(SEEDS):
        rng = random.Random(f"{text} {seed}")
        given = [changed(rng, table, most) for table in tables]
        found = _outcome(words, text, tree, given, rng, place)
        if found.kind in ("equal", "wrong"):
            break
    return Counted(found, shape(tree), keeps_state(tree), _description(given))


def _outcome(words: str, text: str, tree: exp.Query, given: list[Changed], rng: random.Random, place: tuple[str, int]) -> Outcome:
    try:
        answer = answered(text, given)
    except Refused as refusal:
        return Outcome("refused", *place, text, str(refusal))

    def ask(query: str) -> Rows | None:
        try:
            return answered(query, given)
        except Refused:
            return None

    def any_place(rows: Rows) -> bool:
        inside = any(limit.parent is not tree for limit in tree.find_all(exp.Limit))
        return inside or (is_arbitrary(tree) and sum(rows.values()) == sum(answer.values()))

    reasons = {**others(text, tree, answer, ask), "rows of equal order have any place": any_place}
    return outcome(lambda: result(words, given, rng), answer, place, text, reasons)


def _description(given: list[Changed]) -> str:
    changes = [(at, change) for at, each in enumerate(given) for change in each.changes]
    removed, missing = sum(change[-1] < 0 for _, change in changes), sum(None in change for _, change in changes)
    again = len(changes) - len(set(changes))
    return (
        f"{len(changes)} changes: {removed} removed, {again} again, {missing} with NULL; cut, two deaths, savepoint and restore"
    )


def of_file(text: str, place: tuple[str, int], tables: Tables) -> Counted | None:
    """A query of DuckDB's files; None if it is not equal over its own rows, or reads no tables."""
    found = of_query(text, place, tables)
    if found is None or found.kind != "equal":
        return None
    tree = sqlglot.parse_one(text, dialect="duckdb")
    assert isinstance(tree, exp.Query)
    placed, names = over_files(text, tree, tables)
    words = text_of(in_words_of_flink(placed))
    try:
        given = [_table(name, tables) for name in names]
    except Refused:
        return None
    return compared(words, str(placed.sql("duckdb", comments=False)), placed, given, place) if given else None


def _table(name: str, tables: Tables) -> Table:
    schema = _schema(ddl(name, tables.path(name)))
    if any(field.type.is_nested for field in schema):
        raise Refused("random rows have no nested values")
    return Table(name, schema, [tuple(row.values()) for row in pq.read_table(tables.path(name)).slice(0, 100).to_pylist()])


def _schema(statement: str) -> Schema:
    (found,) = parse(Text(statement))
    assert isinstance(found, CreateTable)
    return found.schema


def own() -> Iterator[Counted]:
    """The queries of this repository over orders."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "sql"))
    table = Table("orders", _ORDERS, _ORDER_ROWS)
    for module, name in OWN.items():
        for at, query in enumerate(getattr(import_module(module), name)):
            text = query.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
            tree = sqlglot.parse_one(text, dialect="duckdb")
            assert isinstance(tree, exp.Query)
            yield compared(query.replace("//", "/"), text, tree, [table], (f"{module}.py", at))


COLUMNS = ("compared", "equal", "distinct", "by shape", "with state", "differs", "refused", "wrong")


def table_of(found: Mapping[str, Sequence[Counted]]) -> str:
    """By where queries are from, how many were compared and equal; of these, distinct texts, distinct but for names and numbers,
    and those of the last that keep state; and the others."""
    everything = [each for counted in found.values() for each in counted]
    lines = [f"{'':32}{''.join(f'{column:>11}' for column in COLUMNS)}"]
    for name, counted in (*found.items(), ("total", everything)):
        equal = [each for each in counted if each.outcome.kind == "equal"]
        numbers = [
            *(len(counted), len(equal), len({each.outcome.query for each in equal}), len({each.text for each in equal})),
            len({each.text for each in equal if each.keeps_state}),
            *(sum(each.outcome.kind == kind for each in counted) for kind in KINDS[1:]),
        ]
        lines += [f"{name:32}{''.join(f'{number:11}' for number in numbers)}"] * bool(counted)
    return "\n".join(lines)
