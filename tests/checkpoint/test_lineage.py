from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.checkpoint.lineage import Lineage, Node, build_lineage, run_key, savepoint_key
from forkpoint.checkpoint.manifest import Parent, Run
from forkpoint.checkpoint.savepoint_manifest import Savepoint, Versions
from forkpoint.errors import SavepointCorrupt


def run(name: str, started: int, parent: Parent | None = None, job: str = "j") -> Run:
    return Run(job=job, run=name, generation=1, started_ms=started, parent=parent or Parent())


def savepoint(name: str, by: str, epoch: int, created: int, job: str = "j", **fields: Any) -> Savepoint:
    return Savepoint(
        id=name,
        job=job,
        run=by,
        epoch=epoch,
        created_ms=created,
        versions=Versions(forkpoint="0", python="3"),
        max_parallelism=1,
        parallelism=1,
        **fields,
    )


def from_savepoint(name: str) -> Parent:
    return Parent(kind="savepoint", savepoint_id=name)


def from_checkpoint(name: str, epoch: int) -> Parent:
    return Parent(kind="checkpoint", job="j", run=name, epoch=epoch)


def drawn(lineage: Lineage) -> list[str]:
    return [f"{row.graph} {row.node.key.id}" if row.node else row.graph for row in lineage.rows()]


def test_one_run_is_a_line() -> None:
    lineage = build_lineage([run("r1", 1)], [savepoint("s2", "r1", 20, 3), savepoint("s1", "r1", 10, 2)])
    assert drawn(lineage) == ["◆ s2", "◆ s1", "○ r1"]
    assert lineage.nodes[savepoint_key("s2")].parent == run_key("j", "r1")  # drawn above s1, not dependent on it


def test_forks_and_checkpoints() -> None:
    runs = [
        run("r1", 1),
        run("r2", 40, from_savepoint("s1")),
        run("r3", 50, from_checkpoint("r1", 25)),
        run("r4", 60, from_savepoint("s3")),
    ]
    savepoints = [
        savepoint("s1", "r1", 20, 2),
        savepoint("s2", "r1", 30, 30),
        savepoint("s3", "r2", 99, 45),
    ]
    lineage = build_lineage(runs, savepoints)
    assert drawn(lineage) == [
        "○ r4",
        "│ ○ r3",
        "◆ │ s3",
        "○ │ r2",
        "│ │ ◆ s2",
        "├─┴─╯",
        "◆ s1",
        "○ r1",
    ]
    assert [node.key.id for node in lineage.children(savepoint_key("s1"))] == ["r2"]
    assert [node.key.id for node in lineage.children(run_key("j", "r1"))] == ["s1", "s2", "r3"]
    assert [node.key.id for node in lineage.ancestors(run_key("j", "r4"))] == ["s3", "r2", "s1", "r1"]
    assert [node.key.id for node in lineage.roots()] == ["r1"]


def test_joins_cross_other_lanes() -> None:
    forks = [run("c", 3, from_savepoint("sa")), run("d", 5, from_savepoint("sa"))]
    savepoints = [savepoint("sa", "a", 1, 2), savepoint("sb", "b", 1, 4)]
    assert drawn(build_lineage([run("a", 1), run("b", 0), *forks], savepoints)) == [
        "○ d",
        "│ ◆ sb",
        "│ │ ○ c",
        "├─│─╯",
        "◆ │ sa",
        "○ │ a",
        "  ○ b",
    ]
    assert drawn(build_lineage([run("a", 1), run("b", 2), *forks], savepoints)) == [
        "○ d",
        "│ ◆ sb",
        "│ │ ○ c",
        "│ ○ │ b",
        "├───╯",
        "◆ sa",
        "○ a",
    ]


def test_unrelated_histories_are_kept_apart() -> None:
    assert drawn(build_lineage([run("a", 1), run("b", 2), run("c", 0)], [])) == ["○ b", "", "○ a", "", "○ c"]


def test_what_is_gone_is_still_drawn() -> None:
    lineage = build_lineage(
        [run("r9", 9, from_savepoint("gone"))],
        [savepoint("copied", "elsewhere", 5, 3, job="k", parent=from_savepoint("older"))],
    )
    assert drawn(lineage) == ["○ r9", "│ ◆ copied", "│ ◌ elsewhere", "◌ │ gone", "  ◌ older"]
    assert lineage.nodes[savepoint_key("gone")].record is None
    assert [node.key.id for node in lineage.ancestors(savepoint_key("copied"))] == ["elsewhere", "older"]


def test_copies_of_a_savepoint_count_once() -> None:
    copy = savepoint("s1", "r1", 1, 2)
    assert drawn(build_lineage([run("r1", 1)], [copy, copy])) == ["◆ s1", "○ r1"]


def test_runs_of_one_name_in_two_jobs_differ() -> None:
    assert len(build_lineage([run("r1", 1), run("r1", 2, job="k")], []).nodes) == 2


def test_a_circle_is_refused() -> None:
    with pytest.raises(SavepointCorrupt, match="cycle: run r1 → savepoint s1"):
        build_lineage([run("r1", 1, from_savepoint("s1"))], [savepoint("s1", "r1", 1, 2)])


@st.composite
def histories(draw: st.DrawFn) -> Lineage:
    runs: list[Run] = []
    savepoints: list[Savepoint] = []
    for number in range(draw(st.integers(0, 12))):
        time = draw(st.integers(0, 5))  # clocks of different machines may even run backwards
        kinds = ["none", *(["savepoint"] if savepoints else []), *(["checkpoint", "take"] if runs else [])]
        kind = draw(st.sampled_from(kinds))
        if kind == "take":
            taker = draw(st.sampled_from(runs))
            savepoints.append(savepoint(f"s{number}", taker.run, draw(st.integers(0, 5)), time, parent=taker.parent))
            continue
        parent = Parent()
        if kind == "savepoint":
            parent = from_savepoint(draw(st.sampled_from(savepoints)).id)
        elif kind == "checkpoint":
            parent = from_checkpoint(draw(st.sampled_from(runs)).run, draw(st.integers(0, 5)))
        runs.append(run(f"r{number}", time, parent))
    dropped = draw(st.booleans())
    return build_lineage(runs[1:] if dropped else runs, savepoints)


def follow(rows: list[str], start: int, column: int) -> tuple[int, int]:
    """Go down from the node at (start, column) along its lane; where does it lead?"""
    for line in range(start + 1, len(rows)):
        mark = rows[line][column] if column < len(rows[line]) else " "
        if mark in "╯┴":
            column = rows[line].rindex("├", 0, column)
        elif mark in "○◆◌":
            return line, column
        elif mark not in "│├":
            break
    return -1, -1


@given(histories())
def test_every_node_is_drawn_once_and_lanes_lead_to_what_they_grew_from(lineage: Lineage) -> None:
    rows = list(lineage.rows())
    places: dict[Any, tuple[int, int]] = {}
    nodes: list[Node] = []
    for line, row in enumerate(rows):
        if row.node is not None:
            symbols = [column for column, mark in enumerate(row.graph) if mark in "○◆◌"]
            assert len(symbols) == 1
            places[row.node.key] = (line, symbols[0])
            nodes.append(row.node)
    assert sorted(map(repr, (node.key for node in nodes))) == sorted(map(repr, lineage.nodes))
    graphs = [row.graph for row in rows]
    for node in nodes:
        end = follow(graphs, *places[node.key])
        assert end == (places[node.line] if node.line is not None else (-1, -1))


def test_a_fork_keeps_its_place_when_its_savepoint_is_disposed_of() -> None:
    parent = Parent(kind="savepoint", savepoint_id="gone", job="j", run="r1", epoch=7)
    lineage = build_lineage([run("r1", 1), run("r2", 5, parent, job="fork")], [])
    assert lineage.nodes[savepoint_key("gone")].parent == run_key("j", "r1")
    assert [node.key.id for node in lineage.roots()] == ["r1"]
