"""What jobs with patterns and graphs have saved is read forever: by the same pattern, and by changed ones.

The savepoint was taken of `libraries_job` by the first release with both, after ``FIRST``.
"""

from __future__ import annotations

from pathlib import Path

import libraries_job
import pytest

import forkpoint as fp
from forkpoint.graphs import Graph

SAVED = Path(__file__).parent / "libraries-1" / "savepoint"


LONG, SHORT = "mid=70,80 large=900", "mid=70 large=900"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (libraries_job.pattern(), ["small=5 mid=60 large=700", f"small=7 {SHORT}", f"small=7 {LONG}"]),
        (libraries_job.pattern("tiny"), ["tiny=5 mid=60 large=700", f"tiny=7 {SHORT}", f"tiny=7 {LONG}"]),
        (libraries_job.pattern(limit=6), ["small=5 mid=60 large=700"]),  # 7 is no longer small
    ],
    ids=["same", "renamed", "narrower"],
)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_partial_matches_go_on(pattern: fp.Pattern, found: list[str], parallelism: int, tmp_path: Path) -> None:
    rest = libraries_job.run(tmp_path, pattern, restore=str(SAVED), parallelism=parallelism)
    assert sorted(rest.outputs["matches"]) == found


def test_a_graph_goes_on(tmp_path: Path) -> None:
    rest = libraries_job.run(tmp_path, libraries_job.pattern(), restore=str(SAVED)).outputs
    found = {name: {tuple(each) for each in values} for name, values in rest.items() if name != "matches"}
    assert found == {
        "degrees": {("s", 1, 0, 1), ("v", 2, 0, 2)},
        "components": {("c", 0), ("w", 0), ("v", 0)},
        "colors": set(),
        "triangles": set(),
        "distances": {("s", 700)},
        "sums": {("c", 59), ("s", 700), ("a", 760), ("b", 1380), ("v", 950)},
    }
    assert sorted(Graph.of_savepoint(SAVED, "shops").to_networkx().edges.data("value")) == [
        ("a", "s", 5),
        ("a", "t", 60),
        ("b", "s", 7),
        ("b", "t", 80),
        ("b", "u", 400),
        ("c", "v", 3),
        ("c", "w", 9),
    ]
