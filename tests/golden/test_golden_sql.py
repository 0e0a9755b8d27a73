"""What SQL jobs have saved is read forever: by the same query, which says nothing again, and by a changed one.

The savepoint was taken by the first release with SQL, of ``query.sql``, after it had read ``orders/1.json``.
"""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from programs import ENVIRONMENT, Python

GOLDEN = Path(__file__).parent / "sql-1"


def net_changes(directory: Path, query: str, *options: str) -> dict[str, int]:
    """What a job adds (1) and removes (-1) that goes on from the savepoint, and finds one more file."""
    shutil.copytree(GOLDEN / "orders", directory / "orders")
    (directory / "orders" / "2.json").write_text('{"k": "B", "g": 1, "v": 40, "x": 0.5}\n')
    (directory / "query.sql").write_text(query)
    log = directory / "log"
    with open(log, "wb") as file:
        arguments = ["-m", "forkpoint.cli", "sql", "-f", "query.sql", "-s", str(GOLDEN / "savepoint"), *options]
        job = Python(arguments, cwd=directory, env=ENVIRONMENT, stdout=file, stderr=file)
    try:
        while not re.search(r"\+I\[B, 1, (42|21)", log.read_text()):
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
