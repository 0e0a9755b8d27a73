"""Equal subqueries are computed once, by an operator that has several readers, and state tells them apart."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sql_results import Order, answered, folded
from test_sql_changes import ROWS, run
from test_sql_recompute import names_of, replaced

import forkpoint as fp
from forkpoint.graph.transformations import topological_order
from forkpoint.state_processor import SavepointReader
from forkpoint.testing import EOF, PAUSE, Eof

TOTALS = "(SELECT k, COUNT(*) AS n, COUNT(DISTINCT v) AS d, SUM(v) AS s FROM orders GROUP BY k{})"
PAIRS = f"SELECT a.k, a.n, a.s, b.d FROM {TOTALS} AS a JOIN {TOTALS} AS b ON a.n = b.d AND a.k <> b.k"
BEST = f"SELECT a.k, a.d AS e, b.n AS m FROM {TOTALS} AS a JOIN (SELECT MAX(n) AS n FROM {TOTALS} AS o) AS b ON a.n = b.n"
ALL = (
    f"SELECT o.k, o.v, a.n, b.s FROM orders AS o JOIN {TOTALS} AS a ON o.k = a.k LEFT JOIN {TOTALS} AS b ON o.k = b.k AND b.d > 1"
)
"""With what follows each GROUP BY."""


@pytest.mark.parametrize("query", [PAIRS.format("", ""), BEST.format("", " HAVING COUNT(*) < 9"), ALL.format("", "")])
def test_each_reader_sees_its_own_changes(query: str) -> None:
    """Its columns, of the groups that it asks for: of two columns that change, one reader may see only one."""
    rows = random.Random(7).choices(ROWS, k=40)
    for epoch_rows, parallelism in ((1, 1), (7, 2)):
        assert folded(query, rows, epoch_rows=epoch_rows, parallelism=parallelism) == answered(query, rows)


def test_explain_shows_it_and_the_other_operators_keep_their_uids() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("orders", env.from_collection(ROWS, type_info=type(ROWS[0])))
    other = "JOIN (SELECT k, MAX(v) AS v FROM orders GROUP BY k) AS c ON a.k = c.k"
    table = tables.sql_query(f"{PAIRS.format('', '')} {other}".replace("ON a.n = b.d AND a.k <> b.k JOIN", "ON a.n = b.d JOIN"))
    of_totals = "Aggregate COUNT(*), COUNT(DISTINCT v), SUM(v) by k; "
    shown = [line.strip() for line in table.explain().splitlines() if "Aggregate" in line]
    assert [line.partition("  [")[0].removeprefix(of_totals)[:13] for line in shown] == [
        "keeps a row f",
        "the one above",
        "Aggregate MAX",
    ]
    tables.to_changelog_stream(table).print()
    uids = {each.uid for each in topological_order(env.transformations) if each.uid and "group-by" in each.uid}
    assert uids == {"stream-group-by-k", "stream-group-by-k-3"}


@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_is_no_longer_equal_begins_with_the_same_state(parallelism: int, tmp_path: Path) -> None:
    """A hint of one of the two makes it an operator of its own. They are not one again, as its state may have expired."""
    equal, rows, script, seen = BEST.format("", ""), Counter[Any](), list[Any](), list[Order]()
    hinted = "SELECT /*+ STATE_TTL('orders' = '1 d') */ ".join(equal.rsplit("SELECT ", 1))
    for query, more in ((equal, ROWS), (hinted, ROWS[::3]), (hinted, ROWS[:5])):
        script, seen = [*script, *more, PAUSE, EOF], [*seen, *more]
        for change in run(query, script, tmp_path, parallelism):
            rows[tuple(change[name] for name in names_of(query))] += change["$weight"]
        assert +rows == answered(equal, seen)
        assert min(rows.values()) >= 0
    with pytest.raises(fp.RestoreRefused, match="'totals-group-by-k' would take its place, but has another state; compute"):
        run(equal, script, tmp_path, restore=fp.RestoreOptions(allow_non_restored=True))


def test_what_is_no_longer_equal_is_computed_again(tmp_path: Path) -> None:
    """The first of two has only some rows now, which the state does not tell."""
    old, new = BEST.format("", ""), BEST.format("", "").replace("orders GROUP", "orders WHERE g = 1 GROUP", 1)
    script: list[Any] = [*ROWS, PAUSE, Eof(savepoint=True)]
    before = Counter(
        {tuple(change[name] for name in names_of(old)): change["$weight"] for change in run(old, script, tmp_path / "old")}
    )
    with pytest.raises(
        fp.RestoreRefused,
        match=r"totals-group-by-k/groups +its rows came from orders and would come from orders WHERE",
    ):
        run(new, script, tmp_path / "old")
    run(new, script, tmp_path / "new")
    found = [SavepointReader.find(tmp_path / name, "test") for name in ("old", "new")]
    for change in run(new, script, tmp_path / "run", restore=replaced(*found, tmp_path / "savepoint")):
        before[tuple(change[name] for name in names_of(new))] += change["$weight"]
    assert +before == answered(new, ROWS)
