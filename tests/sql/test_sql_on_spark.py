"""A query with two exchanges on Spark: the same answer, whatever the tasks and epochs."""

from __future__ import annotations

import pytest
from sql_results import Order, answered, folded

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]


def test_a_query_over_a_subquery_on_spark() -> None:
    rows = [Order(f"key {i % 17}", i % 5 or None, i, i / 4) for i in range(500)]
    query = "SELECT n, COUNT(*), SUM(s) FROM (SELECT k, g, COUNT(*) AS n, SUM(v) AS s FROM orders GROUP BY k, g) AS t GROUP BY n"
    assert folded(query, rows, epoch_rows=200, parallelism=2, engine="spark") == answered(query, rows)
