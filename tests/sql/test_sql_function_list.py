"""docs/sql-functions.md says which of Flink's functions there are."""

from __future__ import annotations

import re
from pathlib import Path

from forkpoint.relational.functions.changing import ARRIVAL, CLOCK, RANDOM
from forkpoint.sql.binding.expressions import function_names

PAGE = Path(__file__).parents[2] / "docs" / "sql-functions.md"
OF_CLOCK = set(CLOCK) | set(RANDOM) - {ARRIVAL}
OF_SYNTAX = {
    "POSITION",
    "EXTRACT",
    "CAST",
    "TRY_CAST",
    "STDDEV",
    "VARIANCE",
    "SUM0",
    "TYPEOF",
    "CURRENT_DATABASE",
    "GROUPING",
    "GROUPING_ID",
    "OVERLAPS",
    "SIMILAR TO",
}
OF_OVER = {"ROW_NUMBER", "RANK", "DENSE_RANK", "LAG", "LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST"}


def test_the_page_lists_the_functions_that_there_are() -> None:
    listed: dict[bool, set[str]] = {True: set(), False: set()}
    for row in PAGE.read_text().splitlines():
        if row.startswith("| ") and not row.startswith("| subject"):
            _, names, there = (cell.strip() for cell in row.strip("|").split("|"))
            listed[there.startswith("yes")].update(re.findall(r"`([A-Z0-9_ ]+)`", names))
    assert listed[True] == set(function_names()) | OF_SYNTAX | OF_OVER | OF_CLOCK
    assert not listed[False] & set(function_names())
