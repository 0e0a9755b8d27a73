"""Queries over orders that call functions of the program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st
from sql_results import Order

import forkpoint as fp
from forkpoint.decoders import convert
from forkpoint.relational.canonical import canonical
from forkpoint.relational.plan import Plan
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import Query
from forkpoint.table.session import Session
from forkpoint.testing import TestSource, run_local

LOCAL = {"execution.engine": "local"}
ROWS = st.lists(
    st.builds(
        Order,
        k=st.sampled_from(["a", "b", None]),
        g=st.sampled_from([None, 0, 1, 2]),
        v=st.sampled_from([None, 0, 1, 2, 3]),
        x=st.sampled_from([None, 0.5, 4.0]),
    ),
    max_size=12,
)


def environment(
    rows: list[Any], functions: Mapping[str, Any], of: Any = Order, epoch_rows: int = 100, parallelism: int = 1
) -> fp.StreamTableEnvironment:
    """Orders, or other rows, and functions."""
    env = fp.StreamExecutionEnvironment.get_execution_environment(LOCAL)
    env.set_parallelism(parallelism)
    env.set_max_epoch_rows(epoch_rows)
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("orders", env.from_collection(rows, of))
    for name, function in functions.items():
        tables.create_temporary_function(name, function)
    return tables


def folded(tables: fp.StreamTableEnvironment, query: str) -> Counter[Any]:
    """What remains of the changes of a result. Nothing may be removed that isn't there."""
    found: Counter[Any] = Counter()
    for row in tables.execute_sql(query).collect():
        values = tuple(row)
        found[values] += -1 if row.get_row_kind() is fp.RowKind.DELETE else 1
        assert found[values] >= 0, (values, found)
    return +found


def check_stored_form(tables: fp.StreamTableEnvironment, query: str) -> None:
    """The plan that is stored with state is that of the query, also in the form of a later release."""
    plan = canonical(tables.sql_query(query)._plan)
    stored: Plan = convert(msgspec.to_builtins(plan), Plan)
    assert stored == canonical(stored) == plan


def run(query: str, script: list[Any], state: Path, functions: Mapping[str, Any], restore: str | None = None) -> list[Any]:
    """The changes that one run of a query emits. ``restore``: the savepoint that it starts from."""

    def job(env: fp.StreamExecutionEnvironment, source: TestSource) -> Any:
        session = Session(env)
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "orders", Order).uid("orders")
        session.add_stream("orders", stream)
        for name, function in functions.items():
            session.create_function(name, function, system=False)
        (statement,) = parse(Text(query))
        assert isinstance(statement, Query)
        return session.stream(session.plan(statement), "totals")

    return [tuple(row) for row in run_local(job, script, state_root=str(state), parallelism=1, restore=restore).output]
