"""Savepoints that refer to files of earlier ones: what they hold, what is read, and what is deleted when."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

import forkpoint as fp
from forkpoint.savepoint.catalog.dispose import dispose_savepoint
from forkpoint.savepoint.export import increment
from forkpoint.savepoint.format.opened_savepoint import open_savepoint, verify_files
from forkpoint.savepoint.inspect.reader import SavepointReader
from forkpoint.testing import Eof, run_local

KEYS = 20_000


@pytest.fixture(autouse=True)
def small_state_refers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(increment, "LEAST_BYTES", 0)


def counting(parallelism: int) -> Any:
    def job(env: fp.StreamExecutionEnvironment, source: Any) -> fp.DataStream[Any]:
        env.set_parallelism(parallelism)
        numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        return numbers.key_by(lambda n: n, int).map_with_state(lambda n, seen: (n, (seen or 0) + 1), int).uid("counts")

    return job


def counts(path: str) -> dict[int, int]:
    state = SavepointReader.read(path).state("counts", "state")
    assert state.count == sum(1 for _ in state.rows())
    return {entry.key: entry.value for entry in state.rows()}


def test_a_savepoint_refers_to_the_one_before(tmp_path: Path) -> None:
    root, elements = str(tmp_path / "state"), [*range(KEYS), Eof(savepoint=True)]
    first = run_local(counting(2), elements, state_root=root).savepoint
    elements += [*range(20), Eof(savepoint=True)]
    second = run_local(counting(2), elements, state_root=root).savepoint
    elements += [*range(10, 40), KEYS, Eof(savepoint=True)]
    third = run_local(counting(3), elements, state_root=root).savepoint
    assert first is not None and second is not None and third is not None
    sizes = [open_savepoint(path).savepoint.own_bytes for path in (first, second, third)]
    assert sizes[1] < sizes[0] / 5 and sizes[2] < sizes[0] / 5
    expected = [dict.fromkeys(range(KEYS), 1)]
    expected.append(expected[0] | dict.fromkeys(range(20), 2))
    expected.append(expected[1] | {n: expected[1][n] + 1 for n in range(10, 40)} | {KEYS: 1})
    assert [counts(path) for path in (first, second, third)] == expected
    for path in (first, second):
        dispose_savepoint(open_savepoint(path), runs=[], savepoints=[], force=True)
    verify_files(open_savepoint(third))
    more = run_local(counting(4), [*elements, 0, KEYS, Eof(savepoint=True)], state_root=str(tmp_path / "new"), restore=third)
    assert more.savepoint is not None
    assert counts(more.savepoint) == expected[2] | {0: 3, KEYS: 2}
    dispose_savepoint(open_savepoint(third), runs=[], savepoints=[])
    assert not list(Path(urlparse(third).path).parent.rglob("*.*"))
