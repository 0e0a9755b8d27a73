"""Queries over tables that change: what the changes of a result add up to is DuckDB's answer over the rows that remain.

Rows are random, with NULLs; some come twice, and some are removed again. Epochs end anywhere; the job dies, stops with a
savepoint, and goes on from it with another parallelism.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

import forkpoint as fp
from forkpoint.relational.changes import row_type
from forkpoint.relational.types import Schema
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import Query
from forkpoint.table.api.results import Change
from forkpoint.table.catalog import StreamTable
from forkpoint.table.session import Session
from forkpoint.testing import PAUSE, Abort, Eof, TestSource, run_local
from suites.outcomes import Refused, Rows, plain

SECTIONS = 6
"""Epochs at least, of which the third is the last before the savepoint."""
_ARBITRARY = (exp.RowNumber, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue)


@dataclass(frozen=True)
class Table:
    """``rows``: examples, of whose values random rows are made."""

    name: str
    schema: Schema
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True)
class Changed:
    """A table with its changes, in order: each a row with its weight."""

    table: Table
    changes: list[tuple[Any, ...]]

    @property
    def remaining(self) -> pa.Table:
        left: Counter[Any] = Counter()
        for *row, weight in self.changes:
            left[tuple(row)] += weight
        columns = list(zip(*left.elements(), strict=True)) or [()] * len(self.table.schema)
        fields = zip(self.table.schema, columns, strict=True)
        return pa.table({field.name: pa.array(column, field.type.arrow_type) for field, column in fields})


def changed(rng: random.Random, table: Table, most: int) -> Changed:
    pools = [[*(row[at] for row in table.rows), None] for at in range(len(table.schema))]
    given = rng.sample(table.rows, min(most // 2, len(table.rows)))
    changes: list[tuple[Any, ...]] = []
    present: list[tuple[Any, ...]] = []
    for _ in range(most):
        chosen = rng.random()
        if present and chosen < 0.2:
            changes.append((*present.pop(rng.randrange(len(present))), -1))
            continue
        if present and chosen < 0.35:
            row = rng.choice(present)
        else:
            mixed = tuple(None if rng.random() < 0.1 else rng.choice(pool) for pool in pools)
            row = given.pop() if given and chosen < 0.7 else mixed
        present.append(row)
        changes.append((*row, 1))
    return Changed(table, changes)


def scripts(rng: random.Random, tables: list[Changed]) -> list[list[Any]]:
    """What each table's source does, with a death before and one after the savepoint."""
    found: list[list[Any]] = []
    for at, each in enumerate(tables):
        cuts = sorted(rng.randrange(len(each.changes) + 1) for _ in range(SECTIONS - 1))
        script: list[Any] = []
        deaths = {rng.randrange(3), rng.randrange(3, SECTIONS)} if at == 0 else set()
        for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(each.changes)], strict=True)):
            rows = [fp.Row(*change) for change in each.changes[start:end]]
            if number in deaths:
                rows.insert(rng.randrange(len(rows) + 1), Abort(rng.choice(["computed", "written", "committed"])))
            stops = number == SECTIONS // 2 - 1 and at == 0
            script += [*rows, Eof(savepoint=True) if stops else PAUSE]
        found.append(script)
    return found


def result(text: str, tables: list[Changed], rng: random.Random) -> Rows:
    """What the changes of a query's result add up to. Raises AssertionError if a row is removed that is not there."""
    found: Rows = Counter()
    restore, sources = None, scripts(rng, tables)
    with TemporaryDirectory() as place:
        for part, parallelism in (("first", rng.choice([1, 2])), ("second", rng.choice([1, 3]))):
            change: list[Change] = []

            def job(env: fp.StreamExecutionEnvironment, *inputs: TestSource, change: list[Change] = change) -> Any:
                session = Session(env)
                for each, source in zip(tables, inputs, strict=True):
                    of, name = row_type(each.table.schema, updating=True), each.table.name
                    stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), name, of).uid(name)
                    session.catalog.streams[name] = StreamTable(each.table.schema, stream.edges, None, "all")
                (statement,) = parse(Text(text))
                assert isinstance(statement, Query)
                plan = session.plan(statement)
                answer = session.stream(plan, "result")
                change.append(Change(answer, plan.schema))
                return answer

            options = {"max_parallelism": 8}
            state = str(Path(place) / part)
            done = run_local(job, *sources, state_root=state, parallelism=parallelism, restore=restore, options=options)
            for row in map(change[0], done.output):
                values = tuple(map(plain, row))
                found[values] += -1 if row.get_row_kind() is fp.RowKind.DELETE else 1
                assert found[values] >= 0, f"removes what is not there: {values}"
            restore = done.savepoint
            assert done.deaths == 1
            assert (restore is not None) == (part == "first")
    return +found


def answered(text: str, tables: list[Changed]) -> Rows:
    """DuckDB's answer. Raises Refused if it has none for these rows."""
    with duckdb.connect(config={"threads": "1"}) as database:
        try:
            database.execute("SET TimeZone = 'UTC'")
            for each in tables:
                database.register("given", each.remaining)
                database.execute(f'CREATE TABLE "{each.table.name}" AS FROM given')
            return Counter(tuple(map(plain, row)) for row in database.execute(text).fetchall())
        except (duckdb.Error, ValueError, OverflowError, pa.ArrowInvalid) as error:
            raise Refused(f"DuckDB has no answer for random rows: {type(error).__name__}") from None


def is_arbitrary(tree: exp.Query) -> bool:
    """Whether rows of equal order may have any place."""
    frames = (node.args["kind"] == "ROWS" for node in tree.find_all(exp.WindowSpec))
    return tree.find(exp.Limit, *_ARBITRARY) is not None or any(frames)


def keeps_state(tree: exp.Query) -> bool:
    kinds = (exp.AggFunc, exp.Join, exp.Window, exp.Distinct, exp.SetOperation, exp.Limit, exp.Exists, exp.Group)
    return tree.find(*kinds) is not None or len(list(tree.find_all(exp.Select))) > 1


def shape(tree: exp.Query) -> str:
    """What tells queries apart: neither the names of tables and columns nor numbers and texts."""
    words = tree.copy()
    names: dict[str, str] = {}
    for node in list(words.walk()):
        if isinstance(node, exp.Identifier):
            node.replace(exp.to_identifier(names.setdefault(node.name.lower(), f"n{len(names)}")))
        elif isinstance(node, exp.Literal):
            node.replace(exp.Literal.string("text") if node.is_string else exp.Literal.number(1))
    return str(words.sql(comments=False))
