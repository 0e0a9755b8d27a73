"""Sources that stop at a position: what was read up to there is read, however the files appeared and epochs are cut."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connector_reading import elements, json_round_trip, read_all
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.contract.source import Source, SplitEnumerator
from forkpoint.errors import ConfigError, StorageError


def write(directory: Path, kind: str, name: str, numbers: list[int], mtime: int) -> None:
    path = directory / f"{name}.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), path)
    else:
        path.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
    os.utime(path, ns=(mtime * 10**9, mtime * 10**9))


def make(directory: Path, kind: str, *, bounded: bool) -> Source:
    of = {"parquet": fp.FileSource.parquet, "json": fp.FileSource.json}[kind]
    return of(str(directory), fp.Types.ROW_NAMED(["n"], [fp.Types.LONG()]), bounded=bounded)


def numbers(source: Source, ranges: list[Any]) -> list[int]:
    return [row.n for rows in read_all(source, ranges).values() for row in rows]


def step(source: Source, enumerator: SplitEnumerator, budget: int) -> list[int]:
    return numbers(source, enumerator.plan(budget))


@examples(30)
@given(data=st.data())
def test_a_directory_up_to_a_position(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["json", "parquet"]))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        source = make(directory, kind, bounded=False)
        # Read as files appear, some of them with an older time than those that were there before.
        enumerator = source.create_enumerator(None)
        points: list[tuple[Any, Counter[int]]] = [(json_round_trip(enumerator.position), Counter())]
        counter = iter(range(10**6))
        found: Counter[int] = Counter()
        for i in range(data.draw(st.integers(1, 6))):
            size = data.draw(st.integers(0, 6))
            write(directory, kind, f"f{i}", [next(counter) for _ in range(size)], data.draw(st.integers(1, 9)))
            if data.draw(st.booleans()):
                enumerator = source.create_enumerator(points[-1][0])  # a restart; and so the directory is listed
                found = found + Counter(step(source, enumerator, data.draw(st.integers(1, 8))))
                points.append((json_round_trip(enumerator.position), found))
        first = data.draw(st.integers(0, len(points) - 1))
        last = data.draw(st.integers(first, len(points) - 1))
        replay = make(directory, kind, bounded=data.draw(st.booleans())).create_enumerator(points[first][0])
        replay.stop_at(points[last][0])
        again: Counter[int] = Counter()
        for _ in range(60):
            again += Counter(step(source, replay, data.draw(st.integers(1, 8))))
            assert not replay.finished
            if replay.at_stop:
                break
        assert replay.at_stop
        assert again == points[last][1] - points[first][1]
        assert replay.plan(100) == []
        # From there it is as if it had never stopped.
        rest = source.create_enumerator(json_round_trip(replay.position))
        everything = Counter(points[first][1]) + again
        while more := step(source, rest, 10):
            everything += Counter(more)
        assert everything == Counter(range(next(counter)))


def test_files_that_are_gone_are_missed(tmp_path: Path) -> None:
    for i in range(3):
        write(tmp_path, "json", f"f{i}", [i], i + 1)
    source = make(tmp_path, "json", bounded=False)
    enumerator = source.create_enumerator(None)
    assert step(source, enumerator, 100) == [0, 1, 2]
    (tmp_path / "f1.json").unlink()
    replay = source.create_enumerator(None)
    replay.stop_at(enumerator.position)
    assert step(source, replay, 100) == [0, 2]
    with pytest.raises(StorageError, match="1 of the 3 files that were read before the position to stop at are gone"):
        _ = replay.at_stop


def test_positions_that_lie_behind_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "json", "f", [1, 2, 3], 1)
    source = make(tmp_path, "json", bounded=False)
    enumerator = source.create_enumerator(None)
    start = enumerator.position
    enumerator.plan(1)
    one = json_round_trip(enumerator.position)
    enumerator.plan(1)
    for behind in (start, one):
        with pytest.raises(ConfigError, match="cannot stop"):
            source.create_enumerator(json_round_trip(enumerator.position)).stop_at(behind)
    counting = fp.CounterSource().create_enumerator({"next": 5})
    with pytest.raises(ConfigError, match="cannot stop at 4: it is at 5"):
        counting.stop_at({"next": 4})


def test_a_counter_up_to_a_position() -> None:
    source = fp.CounterSource(20, per_epoch=8)
    enumerator = source.create_enumerator(None)
    enumerator.stop_at({"next": 20})
    planned = [r for _ in range(5) for r in enumerator.plan(100)]
    assert [n for r in planned for n in elements(source, r)] == list(range(20))
    assert enumerator.at_stop
    assert not enumerator.finished  # where it stopped is not its end, whatever comes behind it


def test_a_source_that_cannot_stop_says_so() -> None:
    class Endless(SplitEnumerator):
        position = None
        finished = False

        def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[Any]:
            return []

    with pytest.raises(ConfigError, match="Endless cannot stop at a savepoint's position"):
        Endless().stop_at(None)
    assert not Endless().at_stop
