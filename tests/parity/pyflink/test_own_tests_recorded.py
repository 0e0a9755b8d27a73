"""What is recorded of PyFlink's own tests is what the documentation says; `make pyflink-tests` runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import own_tests

PAGE = Path(__file__).parents[3] / "docs" / "flink-parity.md"
RECORDED: dict[str, str] = json.loads(own_tests.RECORDED.read_text())


def test_nearly_all_relevant_tests_pass():
    passed = sum(how == "passed" for how in RECORDED.values())
    assert passed / len(RECORDED) >= 0.97
    assert f"| all | {len(RECORDED)} | {passed} |" in PAGE.read_text()


def test_the_page_has_a_reason_for_each_that_does_not_pass():
    rows = {tuple(row) for row in re.findall(r"^\| `(test_\w+)` \(.*\) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)}
    assert rows == {(name.rpartition(".")[2], why) for name, why in RECORDED.items() if why != "passed"}


def test_every_reason_is_of_some_test():
    given = {own_tests.said(own_tests.REASONS, name) for name, how in RECORDED.items() if how != "passed"}
    assert given == set(own_tests.REASONS.values())
    assert not [name for name in RECORDED if own_tests.said(own_tests.NOT_RELEVANT, name)]


def test_what_is_recorded_of_tables_is_on_the_page():
    recorded: dict[str, str] = json.loads(own_tests.RECORDED_OF_TABLES.read_text())
    passed = sum(how == "passed" for how in recorded.values())
    assert f"| all of tables | {len(recorded)} | {passed} |" in PAGE.read_text()
    failing = {(name, how) for name, how in recorded.items() if how != "passed"}
    for name, why in failing:
        assert re.search(rf"^\| {re.escape(why)} \| .*`{name.rpartition('.')[2]}`", PAGE.read_text(), re.MULTILINE)
    assert {why for _, why in failing} == set(own_tests.REASONS_OF_TABLES.values())
