"""Going back in time, as the examples tell it: the dashboard that is split afterwards, and the tree of versions."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from example_programs import load
from stories import dashboard, position, versions

from forkpoint.cli import main


def last(rows: list[dict[str, Any]], *fields: str) -> dict[str, tuple[int, ...]]:
    """The greatest line of each kind; counts only grow."""
    return {kind: max(tuple(r[f] for f in fields) for r in rows if r["kind"] == kind) for kind in ("view", "click")}


def check_dashboard(found: dict[str, list[dict[str, Any]]]) -> None:
    events = [event for day in range(1, 32) for event in load("dashboard/post_events.py").events_of(day)]
    paid = Counter(event["kind"] for event in events if event.get("paid"))
    all_of_them = Counter(event["kind"] for event in events)
    assert last(found["dashboard"], "total") == {kind: (n,) for kind, n in all_of_them.items()}
    assert last(found["split"], "organic", "paid") == {k: (n - paid[k], paid[k]) for k, n in all_of_them.items()}
    # It goes on with the counts that it found, and not from the beginning.
    before = Counter(event["kind"] for event in events if "paid" not in event)
    for kind in ("view", "click"):
        totals = sorted(row["organic"] + row["paid"] for row in found["split"] if row["kind"] == kind)
        assert totals == list(range(before[kind] + 1, all_of_them[kind] + 1))


def test_the_dashboard_is_split_from_the_day_when_paid_posts_came(tmp_path: Path) -> None:
    check_dashboard(dashboard("local", tmp_path))


@pytest.mark.slow
def test_every_savepoint_of_the_tree_can_be_gone_on_from(tmp_path: Path) -> None:
    found = versions("local", tmp_path)
    switch = position(found["v0t1"])
    for label, savepoint in found.items():
        number = position(savepoint)
        since = switch if "v1" in label else number
        expected = [sum(n * (1 + (n >= since) * (n % 2)) for n in range(digit, number, 10)) for digit in range(10)]
        rows = pq.read_table(Path(savepoint.removeprefix("file://")) / "operators" / "sums" / "state").to_pydict()
        assert dict(zip(rows["key"], rows["value"], strict=True)) == dict(enumerate(expected)), label
    for label in ("v0t1", "v0t2", "v0t3", "v0t4", "v1t3", "v1t4"):
        assert position(found[f"from-{label}"]) == position(found[label]) + 102

    def ask(*args: str) -> str:
        done = CliRunner().invoke(main, ["--state-root", str(tmp_path / "state"), *args], catch_exceptions=False)
        assert done.exit_code == 0
        return done.output

    nodes = json.loads(ask("tree", "v0", "--output", "json"))["nodes"]
    by_label = {node["label"]: node for node in nodes if node["label"]}
    runs = {node["job"]: node for node in nodes if node["kind"] == "run"}
    assert runs["v1"]["parent"]["id"] == by_label["v0t1"]["id"]
    for label in ("v0t1", "v0t2", "v0t3", "v0t4", "v1t3", "v1t4"):
        assert by_label[label]["parent"]["id"] == runs[label[:2]]["id"]
        assert runs[f"from-{label}"]["parent"]["id"] == by_label[label]["id"]
    assert len(runs) == 8
    drawn = ask("tree").splitlines()
    assert len([line for line in drawn if "◆" in line]) == 12
    assert len([line for line in drawn if "○" in line]) == 8
    assert not any("◌" in line for line in drawn)
    trunk = [line for line in drawn if line.startswith(("◆", "○"))]
    assert [word for line in trunk for word in line.split() if word.startswith("[v0")][-1] == "[v0t1]"


@pytest.mark.spark
@pytest.mark.usefixtures("session")
def test_the_dashboard_on_spark(tmp_path: Path) -> None:
    check_dashboard(dashboard("spark", tmp_path))
