"""A query becomes any other one: its state is computed again from the input, and the first epoch emits the exact difference."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_results import answered
from test_sql_changes import ROWS, run

from forkpoint.operations.versions.recompute import check_functions, replace_query
from forkpoint.relational.definitions.queries import queries_of, replaced_results
from forkpoint.state_processor import SavepointReader, SavepointWriter
from forkpoint.testing import ABORT, PAUSE, Eof

QUERIES = [
    "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM orders GROUP BY k",
    "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM orders WHERE v > 0 GROUP BY k",
    "SELECT k, COUNT(*) AS n, MAX(v) AS s FROM orders GROUP BY k HAVING COUNT(*) > 1",
    "SELECT k, g, COUNT(DISTINCT v) AS n, MIN(x) AS x FROM orders GROUP BY k, g",
    "SELECT g, COUNT(*) AS n FROM (SELECT k, g, COUNT(*) AS m FROM orders GROUP BY k, g) AS o WHERE m < 4 GROUP BY g",
    "SELECT COUNT(*) AS n, SUM(v) AS s FROM orders",
    "SELECT a.k, a.v, b.v AS w FROM orders AS a LEFT JOIN orders AS b ON a.k = b.k AND a.v < b.v",
    "SELECT a.k, a.g, b.v FROM orders AS a FULL JOIN orders AS b ON a.g = b.v",
    "SELECT o.k, n, v FROM orders AS o LEFT JOIN (SELECT k, COUNT(*) AS n FROM orders GROUP BY k) AS c ON o.k = c.k",
    "SELECT k, v, r FROM (SELECT *, RANK() OVER (PARTITION BY k ORDER BY v NULLS FIRST) AS r FROM orders) AS o WHERE r < 4",
    "SELECT k, v, r FROM (SELECT *, COUNT(*) OVER (PARTITION BY k, g) AS r FROM orders WHERE v IS NOT NULL) AS o",
]
SINKS = ["totals-sink"]


def names_of(query: str) -> list[str]:
    items = query[len("SELECT ") : query.index(" FROM")]
    return [part.split(" AS ")[-1].split(".")[-1] for part in re.split(r", (?![^(]*\))", items)]


def replaced(old: SavepointReader, new: SavepointReader, to: Path, *, written: bool = True) -> str:
    """A savepoint with the new query's state in place of the old one's. ``written``: whether the table has its result."""
    before, after = (queries_of([info for s in each.states for info in s.infos], SINKS)["totals"] for each in (old, new))
    writer = SavepointWriter.from_existing_savepoint(old)
    replace_query(writer, old, new, before, after, replaced_results("totals", before, after, written=written))
    return writer.write(to).path


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**9))
def test_the_first_epoch_emits_the_difference_once(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng, place = random.Random(seed), tmp_path_factory.mktemp("states")
    old, new = rng.sample(QUERIES, 2)
    first, more = (rng.choices(ROWS, k=rng.randrange(least, 14)) for least in (1, 0))
    script: list[Any] = [*first, PAUSE, Eof(savepoint=True)]
    for name, query in (("old", old), ("new", new)):
        run(query, script, place / name, rng.choice([1, 3]))
    restored = replaced(*(SavepointReader.find(place / name, "test") for name in ("old", "new")), place / "savepoint")
    names = names_of(new)
    rows = Counter(
        tuple(dict(zip(names_of(old), row, strict=True)).get(name) for name in names) for row in answered(old, first).elements()
    )
    cut, state, parallelism = rng.randrange(len(more) + 1), place / "run", rng.choice([1, 3])
    script += [*rng.choice([[], [ABORT]]), *more[:cut], rng.choice([PAUSE, ABORT]), *more[cut:], PAUSE, Eof(savepoint=True)]
    for change in run(new, script, state, parallelism, restored):
        rows[tuple(change[name] for name in names)] += change["$weight"]
    assert +rows == answered(new, [*first, *more]), (old, new)
    assert min(rows.values(), default=0) >= 0
    assert run(new, [*script, PAUSE, Eof(savepoint=True)], state, parallelism) == []
    assert not any("replaced" in each.name for each in SavepointReader.find(state, "test").states)


@pytest.mark.parametrize("query", [QUERIES[at] for at in (2, 4, 7, 9)])
def test_a_query_that_is_new_has_the_rows_from_before(query: str, tmp_path: Path) -> None:
    """As for an INSERT that is added to a job: its first epoch emits its whole result."""
    script: list[Any] = [*ROWS, PAUSE, Eof(savepoint=True)]
    for name, each in (("old", "SELECT k FROM orders"), ("new", query)):
        run(each, script, tmp_path / name)
    saved = (SavepointReader.find(tmp_path / name, "test") for name in ("old", "new"))
    restored = replaced(*saved, tmp_path / "savepoint", written=False)
    script += [ABORT, *ROWS[:5], PAUSE, Eof(savepoint=True)]
    rows: Counter[Any] = Counter()
    for change in run(query, script, tmp_path / "run", 3, restored):
        rows[tuple(change[name] for name in names_of(query))] += change["$weight"]
    assert +rows == answered(query, [*ROWS, *ROWS[:5]])


def test_a_result_that_also_keeps_values_needs_no_functions(tmp_path: Path) -> None:
    run("SELECT k, COUNT(DISTINCT v) AS n FROM orders GROUP BY k", [*ROWS[:3], PAUSE, Eof(savepoint=True)], tmp_path)
    saved = SavepointReader.find(tmp_path, "test")
    uid = "totals-group-by-k"
    assert len([each for each in saved.states if each.uid == uid and not each.is_timers]) == 2
    check_functions(saved, {uid: uid}, {uid: frozenset()})
