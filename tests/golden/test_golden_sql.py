"""What SQL jobs have saved is read forever: by the same query, which says nothing again, and by a changed one.

The savepoints were taken of ``query.sql``, after it had read ``orders/1.json``: ``sql-1`` (GROUP BY) by the first release with
SQL, ``sql-2`` (a join, OVER and windows) by the first one with those, ``sql-3`` (the rows of a table with changes) likewise,
``sql-4`` (columns TIMESTAMP(3)) by the last one that read such columns with microseconds, ``sql-5`` (MATCH_RECOGNIZE) by the
first one with it, ``sql-6`` (fields of a ROW) by the last one that kept whole ROWs, and all rows of a ranking,
``sql-7`` (equal subqueries) by the last one that computed each of them.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from programs import ENVIRONMENT, Python

GOLDEN, ROWS, CHANGES, DIGITS, PATTERN, FIELDS, EQUAL = (Path(__file__).parent / f"sql-{number}" for number in range(1, 8))
ORDER = '{"k": "B", "g": 1, "v": 40, "x": 0.5}\n'


def net_changes(
    directory: Path, query: str, *options: str, saved: Path = GOLDEN, more: str = ORDER, last: str = r"\+I\[B, 1, (42|21)"
) -> dict[str, int]:
    """What a job adds (1) and removes (-1) that goes on from a savepoint, and finds one more file. ``last``: ends the job."""
    shutil.copytree(saved / "orders", directory / "orders")
    (directory / "orders" / "2.json").write_text(more)
    (directory / "query.sql").write_text(query)
    log = directory / "log"
    with open(log, "wb") as file:
        arguments = ["-m", "forkpoint.cli", "sql", "-f", "query.sql", "-s", str(saved / "savepoint"), *options]
        job = Python(arguments, cwd=directory, env=ENVIRONMENT, stdout=file, stderr=file)
    try:
        while not re.search(last, log.read_text()):
            assert job.poll() is None, log.read_text()
            time.sleep(0.02)
    finally:
        job.kill()
        job.wait()
    found: Counter[str] = Counter()
    for kind, row in re.findall(r"([+-])[ID](\[.*\])", log.read_text()):
        found[row] += 1 if kind == "+" else -1
    return {row: count for row, count in found.items() if count}


@pytest.mark.parametrize("parallelism", ["1", "3"])
def test_the_query_goes_on(parallelism: str, tmp_path: Path) -> None:
    found = net_changes(tmp_path, (GOLDEN / "query.sql").read_text(), "-p", parallelism)
    assert found == {"[B, 1, 42, 2, 2, 1.5]": 1, "[B, 1, 2, 1, 1, 1.0]": -1}


def test_a_changed_query_goes_on(tmp_path: Path) -> None:
    """Other names and order, one column less, another aggregate from the saved ones, and another HAVING."""
    query = """
    CREATE TABLE orders (k STRING, g INT, v BIGINT, x DOUBLE)
    WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json', 'source.monitor-interval' = '1 s');
    CREATE TABLE totals (name STRING, g INT, average BIGINT, c BIGINT) WITH ('connector' = 'print');
    INSERT INTO totals
    SELECT UPPER(o.k), g, AVG(v) AS m, COUNT(x) FILTER (WHERE v > 1)
    FROM (SELECT * FROM orders WHERE g IS NOT NULL) AS o WHERE g > 0 GROUP BY g, UPPER(k) HAVING SUM(v) <> 4;
    """
    found = net_changes(tmp_path, query)
    old = {"[null, 2, null, 1]": -1, "[null, 1, null, 1]": -2}  # their names and averages are columns that were not there
    assert found == {**old, "[null, 2, 5, 1]": 1, "[B, 1, 21, 2]": 1}


@pytest.mark.parametrize("changed", [False, True])
def test_a_join_over_and_windows_go_on(changed: bool, tmp_path: Path) -> None:
    query = (ROWS / "query.sql").read_text()
    if changed:  # another kind of join, a larger n, and one aggregate less
        query = (
            query.replace("LEFT JOIN", "JOIN")
            .replace("place = 1", "place <= 2")
            .replace(", SUM(v)", "")
            .replace(", total DECIMAL(38, 2)", "")
        )
    more = '{"k": "a", "v": 9.00, "tags": ["z"], "ms": 25000}\n'
    found = net_changes(tmp_path, query, saved=ROWS, more=more, last=r"tens> \+I\[null, 1")
    pairs = {"[a, 1.50, 9.00]": 1, "[a, 2.50, 9.00]": 1}
    best = {"[a, 2.50, []]": -1, "[a, 9.00, [z]]": 1}
    if not changed:
        unpaired = {"[a, 2.50, null]": -1, "[a, 9.00, null]": 1}
        assert found == {**pairs, **unpaired, **best, "[b, 1, 7.00]": 1, "[null, 1, 3.00]": 1}
    else:  # of a, the second best was added first; an inner join only gains rows
        assert found == {**pairs, "[a, 9.00, [z]]": 1, "[b, 1]": 1, "[null, 1]": 1}


@pytest.mark.parametrize("changed", [False, True])
def test_a_table_with_changes_goes_on(changed: bool, tmp_path: Path) -> None:
    query = (CHANGES / "query.sql").read_text()
    if changed:  # other columns that the query does not read, and another order
        query = query.replace("name STRING, id INT, city STRING", "city STRING, country STRING, id INT")
    moved = '{"before": null, "after": {"id": 1, "city": "Bonn", "age": 20}, "op": "c"}'  # again: it has no row before it
    same = '{"before": null, "after": {"id": 2, "name": "bob", "city": "Bonn", "age": 31}, "op": "r"}'
    gone = '{"before": {"id": 3, "city": null, "age": null}, "after": null, "op": "d"}'
    more = "\n".join([moved, same, gone, gone, gone.replace("3", "9"), ""])
    found = net_changes(tmp_path, query, saved=CHANGES, more=more, last=r"\+I\[Bonn, 2")
    assert found == {"[Rome, 1, 40]": -1, "[Bonn, 1, 31]": -1, "[null, 1, null]": -1, "[Bonn, 2, 31]": 1}


def test_columns_with_digits_of_seconds_go_on(tmp_path: Path) -> None:
    """What is saved keeps its microseconds; what comes now is cut, which begins a group and a pair of its own."""
    late = '{"k": "a", "at": "2020-01-01 00:00:02.123456", "text": "2020-01-01 00:00:19.9999", "of": {"d": "10:00:00"}}'
    last = '{"k": "b", "at": "2020-01-01 00:00:25.654321", "text": "2020-01-01 00:00:25.654321", "of": null}'
    query, more = (DIGITS / "query.sql").read_text(), f"{late}\n{last}\n"
    found = net_changes(tmp_path, query, saved=DIGITS, more=more, last=r"tens> \+I\[2020-01-01T00:00:10")
    day, saved = "2020-01-01T00:00", "2020-01-01T00:00:02.123456"
    of_keys = {f"[a, {saved}, 2]": -1, f"[a, {saved}, 3]": 1, f"[b, {day}:12, 1]": -1, f"[b, {day}:25.654, 2]": 1}
    of_times = {f"[{day}:02.123, 1]": 1, f"[{day}:25.654, 0]": 1}
    pairs = [f"[b, {day}:12, {day}:25.654Z]", f"[a, {day}:02.123, {saved}Z]", f"[a, {day}:01.500, {day}:02.123Z]"]
    assert found == {**of_keys, **of_times, **dict.fromkeys(pairs, 1), f"[{day}:10, {day}:20, 2]": 1}


@pytest.mark.parametrize("changed", [False, True])
def test_partial_matches_of_rows_go_on(changed: bool, tmp_path: Path) -> None:
    query = (PATTERN / "query.sql").read_text()
    if changed:  # other measures, of columns that are kept
        query = query.replace("COUNT(B.v) AS n", "SUM(B.v) AS n").replace("C.x AS x", "A.x AS x")
    rows = [("a", 4, 9.5, 10_000), ("b", 11, 8.5, 11_000), (None, 1, 7.5, 66_500), ("c", 0, 6.5, 120_000)]
    more = "".join(f"{json.dumps(dict(zip(('k', 'v', 'x', 'ms'), row, strict=True)))}\n" for row in rows)
    found = net_changes(tmp_path, query, saved=PATTERN, more=more, last=r"\+I\[b, ")
    assert found == (
        {"[a, 3, 8, 13, 0.5]": 1, "[b, 9, 12, 12, null]": 1} if changed else {"[a, 3, 8, 2, 9.5]": 1, "[b, 9, 12, 1, 8.5]": 1}
    )


@pytest.mark.parametrize("changed", [False, True])
def test_rows_of_which_only_fields_are_kept_now_go_on(changed: bool, tmp_path: Path) -> None:
    query = (FIELDS / "query.sql").read_text()
    if changed:  # a larger n, and another condition
        query = query.replace(
            "o.v DESC) AS place FROM orders) WHERE place = 1", "o.v DESC) AS place FROM orders) WHERE place < 3"
        )
        query = query.replace("a.o.v < b.o.v", "a.o.v < b.o.v AND b.o.v > 60")
    rows = [("a", 40, 16_000, "Z"), ("b", 80, 17_000, None), ("c", 1, 40_000, "Z")]
    more = "".join(
        json.dumps({"o": {"k": k, "v": v, "note": "n", "at": {"ms": ms, "zone": zone}}}) + "\n" for k, v, ms, zone in rows
    )
    found = net_changes(tmp_path, query, saved=FIELDS, more=more, last=r"firsts> \+I\[null, 60")
    pairs = {"[c, 1, null]": 1, "[b, 60, null]": 1, "[a, 40, null]": 1, "[b, 80, null]": 1}
    if not changed:  # a pair of each greater row of the key; a row without one is taken back
        pairs |= {"[a, 25, null]": -1, "[a, 15, Z]": 1, "[a, 25, Z]": 1}
    near, firsts = dict.fromkeys(("[15, 40]", "[70, 40]", "[30, 40]"), 1), {"[null, 60]": 1, "[Z, 30]": 1}
    best = {"[c, 1]": 1, "[a, 40]": 1, "[b, 80]": 1} | ({} if changed else {"[a, 25]": -1, "[b, 70]": -1})
    assert found == {**pairs, **near, **best, **firsts}


@pytest.mark.parametrize("changed", [False, True])
def test_equal_subqueries_that_are_one_operator_now_go_on(changed: bool, tmp_path: Path) -> None:
    query = (EQUAL / "query.sql").read_text()
    if changed:  # what one of them shows of its groups
        query = query.replace("SELECT a.k, a.n, a.d", "SELECT a.k, a.n, a.n * 10")
    rows = [("a", 3, 9700), ("a", 3, 9800), ("c", 1, 25_000)]
    more = "".join(json.dumps({"k": k, "v": v, "ms": ms}) + "\n" for k, v, ms in rows)
    found = net_changes(tmp_path, query, saved=EQUAL, more=more, last=r"(?s)(?=.*hot> \+I\[a, 3)(?=.*best> \+I\[a, 5)")
    hot = {"[a, 5]": 1, "[a, 3]": 1, "[b, 3]": 1}
    assert found == {**hot, "[b, 4, 3]": -1, **({"[a, 5, 50]": 1} if changed else {"[a, 5, 3]": 1})}
