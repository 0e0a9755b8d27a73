"""The file source: each record once and in order, whatever the cuts; and what it says about files it cannot read."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connector_reading import elements, json_round_trip, read_all
from hypothesis import given
from hypothesis import strategies as st

from example_counts import examples
from forkpoint.connectors.files import formats as file_index
from forkpoint.connectors.files import listing as file_listing
from forkpoint.connectors.files.local import LocalFile
from forkpoint.connectors.files.source import FileSource
from forkpoint.contract.source import Backlog, Source, SplitEnumerator
from forkpoint.errors import ConfigError, InputLost, RecordParseError, RestoreRefused, StorageError
from forkpoint.types import Types


class Event(NamedTuple):
    id: int
    room: str
    level: float = 0.5


EPOCH_NS = 1_700_000_000_000_000_000


def write(path: Path, text: str | bytes, mtime: int) -> Path:
    """A complete file that appears at once, modified at `mtime` seconds after a fixed moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name("." + path.name)
    hidden.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(hidden, ns=(EPOCH_NS + mtime * 10**9,) * 2)
    hidden.rename(path)
    return path


def lines(*ids: int) -> str:
    return "".join(json.dumps({"id": i, "room": f"r{i}", "level": i / 2}) + "\n" for i in ids)


def events(*ids: int) -> list[Event]:
    return [Event(i, f"r{i}", i / 2) for i in ids]


def drain(source: Source, enumerator: SplitEnumerator, max_rows: int = 1000) -> list[Any]:
    out: list[Any] = []
    while planned := enumerator.plan(max_rows):
        out += read_all(source, planned)["files"]
    return out


# -- order and completeness --------------------------------------------------------------------------------------------

FORMATS = ["json", "csv", "text", "parquet"]


def put(directory: Path, kind: str, name: str, ids: list[int], mtime: int, terminated: bool = True) -> None:
    if kind == "json":
        text = lines(*ids)
    elif kind == "csv":
        text = "level,id,room\n" + "".join(f'{i / 2},{i},"r{i}"\n' for i in ids)
    else:
        text = "".join(f"line {i}\n" for i in ids)
    if kind == "parquet":
        sink = pa.BufferOutputStream()
        columns = {"level": [i / 2 for i in ids], "id": pa.array(ids, pa.int32()), "room": [f"r{i}" for i in ids]}
        pq.write_table(pa.table(columns), sink, row_group_size=3)
        write(directory / name, sink.getvalue().to_pybytes(), mtime)
    else:
        write(directory / name, text if terminated else text.rstrip("\n"), mtime)


def source_of(kind: str, directory: Path, **options: Any) -> FileSource:
    if kind == "text":
        return FileSource.text(directory, **options)
    return getattr(FileSource, kind)(directory, Event, **options)  # type: ignore[no-any-return]


def expected(kind: str, ids: list[int]) -> list[Any]:
    if kind == "text":
        return [f"line {i}" for i in ids]
    return [Event(i, f"r{i}", i / 2) for i in ids]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("file"), st.integers(0, 12), st.integers(0, 6), st.booleans()),  # records, mtime, terminated
        st.tuples(st.just("epoch"), st.integers(1, 15), st.integers(1, 4), st.booleans()),  # rows, hint, restart
    ),
    max_size=25,
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
@examples(40)
@given(steps=steps, bounded=st.booleans())
def test_every_record_once_and_in_order(kind: str, steps: list[Any], bounded: bool) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        if bounded:  # everything is there beforehand
            steps = sorted(steps, key=lambda s: s[0] != "file")
        source = source_of(kind, root, bounded=bounded, max_remembered_files=1000)
        enumerator: SplitEnumerator | None = None
        # The model: files wait, sorted by (mtime, path); a file that was begun is finished first.
        waiting: list[tuple[int, str, list[int]]] = []
        begun: list[int] = []
        record = 0
        for number, (what, a, b, flag) in enumerate([*steps, ("epoch", 10_000, 2, True), ("epoch", 10_000, 2, False)]):
            if what == "file":
                ids = list(range(record, record + a))
                record += a
                name = f"{'sub/' if a % 2 else ''}{number * 7 % 10}-{number}.{kind}"
                put(root, kind, name, ids, b, terminated=flag)
                waiting.append((b, name, ids))
                continue
            if enumerator is None or flag:
                position = None if enumerator is None else json_round_trip(enumerator.position)
                enumerator = source.create_enumerator(position)
            enumerator._listed_at = float("-inf")  # type: ignore[attr-defined]  # as if time had passed
            planned = enumerator.plan(a, b)
            got = read_all(source, planned).get("files", [])
            want = begun
            for _, _, ids in sorted(waiting):
                if len(want) >= a:
                    break
                waiting = [w for w in waiting if w[2] is not ids]
                want = want + ids
            want, begun = want[:a], want[a:]
            assert got == expected(kind, want)
            assert len(planned) >= min(b, len(want))
            assert sum(r.rows or 0 for r in planned) == len(want)
        assert not waiting
        assert not begun
        assert enumerator is not None
        assert enumerator.finished is bounded
    finally:
        shutil.rmtree(root)


@pytest.mark.parametrize("kind", FORMATS)
def test_pieces_are_balanced_and_cut_inside_of_files(kind: str, tmp_path: Path) -> None:
    put(tmp_path, kind, "a", list(range(1000)), 1)
    put(tmp_path, kind, "b", list(range(1000, 1010)), 2)
    source = source_of(kind, tmp_path)
    planned = source.create_enumerator(None).plan(10_000, parallelism_hint=4)
    assert [len(elements(source, r)) for r in planned] == [252, 253, 252, 253]
    assert [r.piece for r in planned] == [0, 1, 2, 3]
    assert len(planned[-1].info["files"]) == 2


def test_pieces_have_at_most_128k_rows_in_multiples_of_the_hint(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "x\n" * 300_000, 1)
    planned = FileSource.text(tmp_path).create_enumerator(None).plan(1_000_000, parallelism_hint=2)
    assert [r.rows for r in planned] == [75_000] * 4


def test_a_line_index_agrees_with_splitting_across_blocks(tmp_path: Path) -> None:
    text = b"".join(b"x" * (i * 37 % 5000) + b"\n" for i in range(500)) + b"rest"
    path = write(tmp_path / "a", text, 1)
    ends = [0]
    for line in text.splitlines(keepends=True):
        ends.append(ends[-1] + len(line))
    for first in (0, 3, 499):
        for rows in (1, 2, 57, 501 - first, 1000):
            index = file_index.LineIndex(LocalFile(path), ends[first], len(text))
            count = min(rows, 501 - first)
            assert index.take(rows) == (ends[first + count], count)
            assert [index.offset(i) for i in range(count + 1)] == ends[first : first + count + 1]


def test_parquet_pieces_may_be_read_in_any_order_by_one_reader(tmp_path: Path) -> None:
    put(tmp_path, "parquet", "a", list(range(20)), 1)
    source = source_of("parquet", tmp_path)
    planned = source.create_enumerator(None).plan(100, parallelism_hint=7)
    type = source.output_type()
    assert type is not None
    for order in (planned, planned[::-1], planned[::2] + planned[1::2], [planned[2], planned[2]]):
        reader = source.create_reader()
        for part in order:
            rows = [e.id for run in reader.read(part) for e in type.from_columns(run.columns)]  # type: ignore[union-attr]
            assert rows == list(range(part.start[2], part.end[2]))
        reader.close()


# -- what counts as a file ---------------------------------------------------------------------------------------------


def test_hidden_files_and_directories_are_ignored(tmp_path: Path) -> None:
    write(tmp_path / "a.json", lines(1), 1)
    for name in (".b.json", "_c.json", "_tmp/d.json", ".e/f.json"):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(lines(9))
    write(tmp_path / "sub" / "g.json", lines(2), 2)
    source = FileSource.json(tmp_path, Event)
    assert drain(source, source.create_enumerator(None)) == events(1, 2)


@pytest.mark.parametrize(
    ("path", "pattern", "ids"),
    [
        ("", None, [1, 2, 3, 4]),
        ("", "*.json", [1, 3, 4]),
        ("", "sub/*.json", [3]),
        ("", "**/deep/*", [4]),
        ("*.json", None, [1]),
        ("*/*.json", None, [3]),
        ("**/*.json", None, [1, 3, 4]),
        ("a.js*", None, [1]),
        ("[!a].txt", None, [2]),
        ("a.json", None, [1]),
        ("s?b", None, []),
    ],
)
def test_paths_globs_and_patterns(tmp_path: Path, path: str, pattern: str | None, ids: list[int]) -> None:
    for i, name in enumerate(["a.json", "b.txt", "sub/c.json", "sub/deep/d.json"], 1):
        write(tmp_path / name, lines(i), i)
    source = FileSource.json(f"{tmp_path}/{path}", Event, pattern=pattern)
    assert drain(source, source.create_enumerator(None)) == events(*ids)


def test_a_bounded_source_reads_what_was_there_at_its_first_start(tmp_path: Path) -> None:
    write(tmp_path / "a", lines(1, 2), 1)
    write(tmp_path / "b", lines(3), 2)
    source = FileSource.json(tmp_path, Event).as_bounded()
    assert source.bounded
    enumerator = source.create_enumerator(None)
    assert read_all(source, enumerator.plan(1))["files"] == events(1)
    write(tmp_path / "c", lines(4), 3)
    again = source.create_enumerator(json_round_trip(enumerator.position))
    assert not again.finished
    assert drain(source, again) == events(2, 3)
    assert again.finished
    assert source.create_enumerator(json_round_trip(again.position)).finished


def test_a_bounded_source_without_files_is_finished(tmp_path: Path) -> None:
    source = FileSource.json(tmp_path, Event, bounded=True)
    enumerator = source.create_enumerator(None)
    write(tmp_path / "late", lines(1), 1)
    assert enumerator.finished
    assert source.create_enumerator(json_round_trip(enumerator.position)).finished


def test_a_late_file_with_an_older_time_is_read(tmp_path: Path) -> None:
    source = FileSource.json(tmp_path, Event)
    enumerator = source.create_enumerator(None)
    write(tmp_path / "b", lines(1), 100)
    assert drain(source, enumerator) == events(1)
    write(tmp_path / "a", lines(2), 50)
    assert drain(source, source.create_enumerator(json_round_trip(enumerator.position))) == events(2)


def test_memory_of_files_is_bounded_and_never_forgets_into_reading_twice(tmp_path: Path) -> None:
    source = FileSource.json(tmp_path, Event, max_remembered_files=10)
    enumerator = source.create_enumerator(None)
    for i in range(100):
        write(tmp_path / f"{i:03}", lines(i), i)
        assert drain(source, enumerator) == events(i)
        enumerator = source.create_enumerator(json_round_trip(enumerator.position))
    assert enumerator.position["seen"]["remembered"] == 10
    assert len(json.dumps(enumerator.position)) < 600
    write(tmp_path / "late", lines(1000), 95)
    write(tmp_path / "too late", lines(1001), 5)
    enumerator = source.create_enumerator(json_round_trip(enumerator.position))
    assert drain(source, enumerator) == events(1000)


def test_the_backlog_is_told_in_bytes_and_files(tmp_path: Path) -> None:
    sizes = [write(tmp_path / str(i), lines(2 * i, 2 * i + 1), i).stat().st_size for i in range(3)]
    enumerator = FileSource.json(tmp_path, Event, bounded=True).create_enumerator(None)
    assert enumerator.backlog() == Backlog(sum(sizes), "bytes", 3)
    enumerator.plan(1)
    assert enumerator.backlog() == Backlog(sum(sizes) - len(lines(0)), "bytes", 3)  # one is partly read
    resumed = FileSource.json(tmp_path, Event, bounded=True).create_enumerator(json_round_trip(enumerator.position))
    assert resumed.backlog() == enumerator.backlog()
    for files in (2, 2, 1, 1, 0):
        enumerator.plan(1)
        assert enumerator.backlog().files == files
    assert enumerator.backlog() == Backlog(0, "bytes", 0)


def test_a_backlog_larger_than_the_memory_is_read_whole(tmp_path: Path) -> None:
    for i in range(60):
        write(tmp_path / f"{i * 7 % 60:02}", lines(i), i // 20)  # few times, many files of each
    source = FileSource.json(tmp_path, Event, max_remembered_files=3, max_file_age=timedelta(milliseconds=1))
    enumerator = source.create_enumerator(None)
    got: list[Event] = []
    while planned := enumerator.plan(1):
        got += read_all(source, planned)["files"]
        enumerator = source.create_enumerator(json_round_trip(enumerator.position))
    assert sorted(e.id for e in got) == list(range(60))


def test_late_files_that_were_found_are_not_forgotten_while_they_wait(tmp_path: Path) -> None:
    source = FileSource.json(tmp_path, Event, max_remembered_files=2, max_file_age=timedelta(seconds=60))
    enumerator = source.create_enumerator(None)
    for i in (100, 101):
        write(tmp_path / f"{i}", lines(i), i)
    assert drain(source, enumerator) == events(100, 101)
    for i in (50, 60, 70, 80):
        write(tmp_path / f"{i}", lines(i), i)
    for i in (50, 60, 70, 80):
        assert read_all(source, enumerator.plan(1))["files"] == events(i)
        enumerator = source.create_enumerator(json_round_trip(enumerator.position))
    assert drain(source, enumerator) == []


def test_max_file_age_ignores_late_files_that_are_too_old(tmp_path: Path) -> None:
    source = FileSource.json(tmp_path, Event, max_file_age=timedelta(seconds=10))
    enumerator = source.create_enumerator(None)
    write(tmp_path / "a", lines(1), 100)
    assert drain(source, enumerator) == events(1)
    write(tmp_path / "b", lines(2), 89)
    write(tmp_path / "c", lines(3), 90)
    assert drain(source, enumerator) == events(3)


def test_late_files_that_are_ignored_are_named_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = FileSource.json(tmp_path, Event, max_remembered_files=2)
    enumerator = source.create_enumerator(None)
    for i in range(10, 15):
        write(tmp_path / f"{i}", lines(i), i)
    assert drain(source, enumerator) == events(*range(10, 15))
    assert (enumerator.ignored, caplog.text) == (0, "")
    for name in ("late", "later"):
        write(tmp_path / name, lines(1), 5)
    write(tmp_path / "in time", lines(2), 14)
    assert drain(source, enumerator) == events(2)
    assert enumerator.ignored == 2
    assert "2 late files are not read" in caplog.text
    assert "(late, later)" in caplog.text
    caplog.clear()
    assert drain(source, enumerator) == []
    assert not caplog.text
    again = source.create_enumerator(json_round_trip(enumerator.position))
    assert drain(source, again) == []
    assert again.ignored == 2  # by their number: nobody saw them come
    (tmp_path / "late").rename(tmp_path / ".late")
    shutil.copy(tmp_path / ".late", tmp_path / "again")
    assert drain(source, again) == events(1)


@pytest.mark.parametrize("name", ["a[1].json", "a*.json", "what?"])
def test_a_path_that_exists_is_no_glob(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a1.json", lines(1), 1)
    write(tmp_path / name, lines(2), 2)
    source = FileSource.json(tmp_path / name, Event, bounded=True)
    assert drain(source, source.create_enumerator(None)) == events(2)
    write(tmp_path / "[x]" / "b.json", lines(3), 3)
    source = FileSource.json(tmp_path / "[x]" / "*.json", Event, bounded=True)
    assert drain(source, source.create_enumerator(None)) == events(3)


def test_what_matches_nothing_at_the_start_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = FileSource.json(tmp_path / "*.jsn", Event)
    write(tmp_path / "a.json", lines(1), 1)
    enumerator = source.create_enumerator(None)
    assert enumerator.plan(10) == []
    assert f"no file that matches './*.jsn' in {tmp_path}" in caplog.text
    caplog.clear()
    assert enumerator.plan(10) == []
    FileSource.json(tmp_path, Event).create_enumerator(None).plan(10)
    assert not caplog.text
    (tmp_path / "empty").mkdir()
    FileSource.json(tmp_path / "empty", Event, bounded=True).create_enumerator(None)
    assert f"there is no file in {tmp_path}/empty" in caplog.text


def test_files_that_vanish_and_come_back_or_take_the_place_of_others(tmp_path: Path) -> None:
    source = FileSource.json(tmp_path, Event)
    enumerator = source.create_enumerator(None)
    for i in range(3):
        write(tmp_path / f"{i}", lines(i), i)
    assert read_all(source, enumerator.plan(1))["files"] == events(0)
    (tmp_path / "1").rename(tmp_path / ".1")
    write(tmp_path / "2", lines(20, 21), 9)
    assert drain(source, enumerator) == events(20, 21)
    (tmp_path / ".1").rename(tmp_path / "1")
    assert drain(source, enumerator) == events(1)


def test_what_was_found_is_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    real = file_listing.FileEntry
    monkeypatch.setattr(file_listing, "FileEntry", lambda ns, path, size: looked.append(path) or real(ns, path, size))
    source = FileSource.json(tmp_path, Event)
    enumerator = source.create_enumerator(None)
    for i in range(20):
        write(tmp_path / f"{i % 3}" / f"{i:02}", lines(i), i)
        assert drain(source, enumerator) == events(i)
    assert sorted(looked) == sorted(f"{i % 3}/{i:02}" for i in range(20))


def test_what_is_appended_after_a_file_was_found_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a", lines(1, 2), 1)
    source = FileSource.json(tmp_path, Event)
    enumerator = source.create_enumerator(None)
    planned = enumerator.plan(1)
    with path.open("a") as f:
        f.write(lines(3))
    assert read_all(source, planned)["files"] == events(1)
    assert drain(source, enumerator) == events(2)


def test_the_directory_may_move(tmp_path: Path) -> None:
    write(tmp_path / "old" / "a", lines(1, 2), 1)
    source = FileSource.json(tmp_path / "old", Event)
    enumerator = source.create_enumerator(None)
    enumerator.plan(1)
    (tmp_path / "old").rename(tmp_path / "new")
    moved = FileSource.json(tmp_path / "new", Event)
    assert drain(moved, moved.create_enumerator(json_round_trip(enumerator.position))) == events(2)


# -- files that change -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_vanished_or_shrank_is_an_error(kind: str, tmp_path: Path) -> None:
    put(tmp_path, kind, "a", list(range(10)), 1)
    whole = (tmp_path / "a").read_bytes()
    source = source_of(kind, tmp_path)
    enumerator = source.create_enumerator(None)
    planned = enumerator.plan(5, parallelism_hint=1)
    position = json_round_trip(enumerator.position)
    (tmp_path / "a").write_bytes(whole[: len(whole) // 4])
    with pytest.raises(StorageError, match=r"/a: the file had \d+ bytes .* has \d+ now"):
        elements(source, planned[0])
    with pytest.raises(StorageError, match=r"/a: the file had \d+ bytes"):
        source.create_enumerator(position).plan(5)
    (tmp_path / "a").unlink()
    with pytest.raises(StorageError, match="/a: the file has vanished"):
        elements(source, planned[0])
    with pytest.raises(StorageError, match="/a: the file has vanished"):
        source.create_enumerator(position).plan(5)
    write(tmp_path / "a", whole, 1)  # the remedy
    assert elements(source, planned[0]) == expected(kind, [0, 1, 2, 3, 4])
    assert drain(source, source.create_enumerator(position)) == expected(kind, [5, 6, 7, 8, 9])


@pytest.mark.parametrize("rows", [1, 5, 9])
@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_is_replaced_by_another_of_its_name_and_size_is_an_error(kind: str, tmp_path: Path, rows: int) -> None:
    """Once it has been begun: else, half of each would be read. Also after a restart; its beginning tells."""
    put(tmp_path, kind, "a", list(range(10)), 1)
    whole = (tmp_path / "a").read_bytes()
    source = source_of(kind, tmp_path)
    enumerator = source.create_enumerator(None)
    first = [value for range_ in enumerator.plan(rows) for value in elements(source, range_)]
    assert first == expected(kind, list(range(rows)))
    position = json_round_trip(enumerator.position)
    if position["current"] is None:  # some formats are read as a whole
        return
    (tmp_path / "a").unlink()
    put(tmp_path, kind, "a", list(range(9, -1, -1)), 1)
    if kind == "parquet":  # whose size depends on the values
        write(tmp_path / "a", whole.replace(b"parquet-cpp-arrow", b"parquet-cpp-other"), 1)
    assert len((tmp_path / "a").read_bytes()) == len(whole)
    for at in (enumerator, source.create_enumerator(position)):
        with pytest.raises(InputLost, match="/a: has other content than when the job read its beginning"):
            at.plan(5)
    write(tmp_path / "a", whole, 1)  # the remedy
    assert drain(source, source.create_enumerator(position)) == expected(kind, list(range(rows, 10)))
    del position["current"]["mark"]  # of an earlier release
    assert drain(source, source.create_enumerator(position)) == expected(kind, list(range(rows, 10)))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_vanished_before_it_was_begun_is_none_of_ours(kind: str, tmp_path: Path) -> None:
    put(tmp_path, kind, "a", [1, 2], 1)
    put(tmp_path, kind, "b", [3], 2)
    put(tmp_path, kind, "c", [4], 3)
    source = source_of(kind, tmp_path, bounded=True)
    enumerator = source.create_enumerator(None)
    enumerator.plan(2)
    (tmp_path / "b").unlink()
    assert drain(source, enumerator) == expected(kind, [4])


# -- records that cannot be read ---------------------------------------------------------------------------------------


def test_a_broken_json_record_is_named_with_file_line_and_remedy(tmp_path: Path) -> None:
    write(tmp_path / "a", lines(*range(50)) + '{"id": 50, "room": tru\n' + lines(51), 1)
    source = FileSource.json(tmp_path, Event)
    planned = source.create_enumerator(None).plan(100, parallelism_hint=3)
    with pytest.raises(RecordParseError) as e:
        read_all(source, planned)
    assert f"{tmp_path}/a, line 51: cannot read " in str(e.value)
    assert '{"id": 50, "room": tru as id, room, level' in str(e.value)
    assert "on_parse_error='skip'" in str(e.value)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"id": "7", "room": "x"}', "id: expected int, got '7'"),
        ('{"id": 7.5, "room": "x"}', "id: expected int, got 7.5"),
        ('{"id": null, "room": "x"}', "id: expected int, got None"),
        ('{"room": "x"}', "id: missing, and the field has no default"),
        ('{"id": 99999999999999999999, "room": "x"}', "64 bits"),
        ('{"id": 1, "room": {"a": 1}}', "room: expected str"),
        ('[1, "x", 2.5]', "expected an object with the fields id, room, level, got the array [1, 'x', 2.5]"),
        ("17", "expected an object, got 17"),
        ('{"id": 1, "room": "x"} {"id": 2, "room": "y"}', "not JSON on one line"),
        ("x" * 5000, "(5000 characters)"),
    ],
)
def test_records_of_another_shape(tmp_path: Path, line: str, problem: str) -> None:
    write(tmp_path / "a", lines(1) + line + "\n" + lines(2), 1)
    source = FileSource.json(tmp_path, Event)
    with pytest.raises(RecordParseError) as e:
        drain(source, source.create_enumerator(None))
    assert problem in str(e.value)
    assert ", line 2: " in str(e.value)
    assert len(str(e.value)) < 1000
    skipping = FileSource.json(tmp_path, Event, on_parse_error="skip")
    assert drain(skipping, skipping.create_enumerator(None)) == events(1, 2)


def test_skipped_records_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "a", "nonsense\n" + lines(1), 1)
    source = FileSource.json(tmp_path, Event, on_parse_error="skip")
    assert drain(source, source.create_enumerator(None)) == events(1)
    assert "a, line 1: cannot read nonsense" in caplog.text


def test_defaults_blank_lines_unknown_keys_and_crlf(tmp_path: Path) -> None:
    write(
        tmp_path / "a",
        b'\xef\xbb\xbf{"id": 1, "room": "x", "more": [1]}\r\n\r\n  \n{"id": 2, "room": "y"}\n'
        b'{"level": 3, "id": 3, "room": "\xc3\xa9"}',
        1,
    )
    source = FileSource.json(tmp_path, Event)
    want = [Event(1, "x", 0.5), Event(2, "y", 0.5), Event(3, "é", 3.0)]
    assert drain(source, source.create_enumerator(None)) == want


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    write(tmp_path / "a", b"good\nb\xff\nmore\r\n\n", 1)
    source = FileSource.text(tmp_path)
    with pytest.raises(RecordParseError, match=r"a, line 2: cannot read .*: not UTF-8"):
        drain(source, source.create_enumerator(None))
    source = FileSource.text(tmp_path, on_parse_error="skip")
    assert drain(source, source.create_enumerator(None)) == ["good", "more", ""]
    write(tmp_path / "a", b'{"id": 1, "room": "\xff", "level": 1}\n' + lines(2).encode(), 1)
    source = FileSource.json(tmp_path, Event, on_parse_error="skip")
    assert drain(source, source.create_enumerator(None)) == events(2)


# -- types -------------------------------------------------------------------------------------------------------------


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct):
    a: int
    b: str | None = None


class Rich(NamedTuple):
    when: datetime
    day: date
    span: timedelta
    price: Decimal
    key: UUID
    data: bytes
    tags: list[str]
    inner: Inner
    inners: list[Inner]
    counts: dict[int, float]
    color: Color
    either: int | str
    pair: tuple[int, str]
    maybe: int | None


RICH = Rich(
    datetime.fromisoformat("2026-01-02T03:04:05.000678"),
    date(2026, 1, 2),
    timedelta(hours=1, seconds=2.5),
    Decimal("1.10"),
    UUID(int=5),
    b"\x00\xff",
    ["x", "y"],
    Inner(1),
    [Inner(2, "z"), Inner(3)],
    {1: 1.5, 2: 2.0},
    Color.BLUE,
    "text",
    (1, "one"),
    None,
)


def test_rich_records_come_out_of_json_as_their_type_says(tmp_path: Path) -> None:
    raw = {
        "when": "2026-01-02T03:04:05.000678",
        "day": "2026-01-02",
        "span": "PT1H2.5S",
        "price": 1.10,
        "key": str(UUID(int=5)),
        "data": "AP8=",
        "tags": ["x", "y"],
        "inner": {"a": 1},
        "inners": [{"a": 2, "b": "z"}, {"a": 3}],
        "counts": {"1": 1.5, "2": 2},
        "color": "blue",
        "either": "text",
        "pair": [1, "one"],
    }
    line = json.dumps(raw).replace("1.1,", "1.10,")
    write(tmp_path / "a", (line + "\n") * 3, 1)
    source = FileSource.json(tmp_path, Rich)
    assert drain(source, source.create_enumerator(None)) == [RICH] * 3


class Simple(NamedTuple):
    n: int
    when: datetime
    flag: bool
    name: str
    x: float | None


simple = st.builds(
    Simple,
    n=st.integers(-(2**63), 2**63 - 1),
    when=st.datetimes(min_value=datetime(1700, 1, 1), max_value=datetime(2200, 1, 1)),  # noqa: DTZ001
    flag=st.booleans(),
    name=st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x00"), max_size=8),
    x=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)


@pytest.mark.parametrize("kind", ["json", "csv"])
@examples(60)
@given(rows=st.lists(simple, max_size=8), broken=st.booleans())
def test_the_fast_and_the_careful_way_agree(kind: str, rows: list[Simple], broken: bool) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        if kind == "json":
            text = "".join(msgspec.json.encode(r._asdict()).decode() + "\n" for r in rows)
        else:
            text = "n,when,flag,name,x\n"
            for r in rows:
                name = r.name.replace('"', '""')
                text += f'{r.n},{r.when.isoformat()},{str(r.flag).lower()},"{name}",{"" if r.x is None else repr(r.x)}\n'
        write(root / "a", text + ("broken\n" if broken else ""), 1)  # one broken record sends all the careful way
        options: Any = {"on_parse_error": "skip"} if broken else {}
        source = getattr(FileSource, kind)(root, Simple, **options)
        assert drain(source, source.create_enumerator(None)) == rows
    finally:
        shutil.rmtree(root)


def test_json_without_a_type_or_with_a_plain_one(tmp_path: Path) -> None:
    write(tmp_path / "a", '{"a": [1, null]}\n7\n', 1)
    source: Source = FileSource.json(tmp_path)
    assert drain(source, source.create_enumerator(None)) == [{"a": [1, None]}, 7]
    write(tmp_path / "a", "1\n2\n", 1)
    source = FileSource.json(tmp_path, int)
    assert drain(source, source.create_enumerator(None)) == [1, 2]
    source = FileSource.json(tmp_path, Types.ANY())
    assert drain(source, source.create_enumerator(None)) == [1, 2]


def test_csv_shapes(tmp_path: Path) -> None:
    write(tmp_path / "a", 'room;id\n"a;b";1\n\n"say ""x""";2\n', 1)
    write(tmp_path / "b", "id;other;room\n3;;c\n", 2)  # columns by name, each file with its own header
    source: Source = FileSource.csv(tmp_path, Event, delimiter=";")
    want = [Event(1, "a;b"), Event(2, 'say "x"'), Event(3, "c")]
    assert drain(source, source.create_enumerator(None)) == want
    untyped = FileSource.csv(tmp_path, delimiter=";", pattern="b")
    assert drain(untyped, untyped.create_enumerator(None)) == [{"id": "3", "other": "", "room": "c"}]


def test_csv_without_a_header(tmp_path: Path) -> None:
    write(tmp_path / "a", "1,x,2.5\n2,y,3\n", 1)
    source = FileSource.csv(tmp_path, Event, header=False)
    planned = source.create_enumerator(None).plan(10, parallelism_hint=2)
    assert read_all(source, planned)["files"] == [Event(1, "x", 2.5), Event(2, "y", 3.0)]
    with pytest.raises(ConfigError, match="header=False needs a type"):
        FileSource.csv(tmp_path, header=False)


@pytest.mark.parametrize("hint", [1, 2, 4])
def test_csv_with_line_ends_in_values(tmp_path: Path, hint: int) -> None:
    write(tmp_path / "a", 'id,room\n1,"two\nlines"\n2,x\n', 1)
    source = FileSource.csv(tmp_path, Event)
    with pytest.raises(RecordParseError, match=r"line [23]: .*newlines_in_values=True"):
        read_all(source, source.create_enumerator(None).plan(100, hint))
    source = FileSource.csv(tmp_path, Event, newlines_in_values=True)
    planned = source.create_enumerator(None).plan(100, hint)
    assert read_all(source, planned)["files"] == [Event(1, "two\nlines"), Event(2, "x")]


def test_csv_problems(tmp_path: Path) -> None:
    write(tmp_path / "a", "id,room\n1,x\nseven,y\n", 1)
    source = FileSource.csv(tmp_path, Event)
    with pytest.raises(RecordParseError, match=r"a, line 3: cannot read seven,y .*id: expected int, got 'seven'"):
        drain(source, source.create_enumerator(None))
    write(tmp_path / "a", "id,room\n1,x\n2\n", 1)
    with pytest.raises(RecordParseError, match=r"line 3: .*1 values for the 2 columns id, room"):
        drain(source, source.create_enumerator(None))
    write(tmp_path / "a", "id,name\n1,x\n", 1)
    with pytest.raises(RecordParseError, match="room: missing, and the field has no default"):
        drain(source, source.create_enumerator(None))


@pytest.mark.parametrize("newlines", [False, True])
def test_compressed_files(tmp_path: Path, newlines: bool) -> None:
    write(tmp_path / "a.json.gz", gzip.compress(lines(1, 2, 3).encode()), 1)
    source: Source = FileSource.json(tmp_path, Event)
    assert drain(source, source.create_enumerator(None)) == events(1, 2, 3)
    write(tmp_path / "c" / "b.csv.gz", gzip.compress(b"id,room\n1,x\n2,y\n"), 1)
    source = FileSource.csv(tmp_path / "c", Event, newlines_in_values=newlines)
    assert drain(source, source.create_enumerator(None)) == [Event(1, "x"), Event(2, "y")]
    write(tmp_path / "d" / "b.json.gz", b"this is not gzip", 1)
    source = FileSource.json(tmp_path / "d", Event)
    with pytest.raises(RecordParseError, match=r"b\.json\.gz: cannot be decompressed as gzip"):
        drain(source, source.create_enumerator(None))


def parquet(path: Path, table: pa.Table, mtime: int = 1) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    write(path, sink.getvalue().to_pybytes(), mtime)


def test_parquet_is_cast_where_nothing_is_lost(tmp_path: Path) -> None:
    parquet(tmp_path / "a", pa.table({"id": pa.array([1.0, 2.0]), "room": pa.array(["x", "y"]).dictionary_encode()}))
    source = FileSource.parquet(tmp_path, Event)
    with pytest.raises(RecordParseError, match=r"a, row [01]: cannot read .*id: expected int, got [12]\.0"):
        drain(source, source.create_enumerator(None))
    parquet(tmp_path / "a", pa.table({"id": pa.array([1, None, 3], pa.int8()), "room": ["x", "y", "z"]}))
    with pytest.raises(RecordParseError, match=r"a, row 1: .*id: expected int, got None"):
        drain(source, source.create_enumerator(None))
    source = FileSource.parquet(tmp_path, Event, on_parse_error="skip")
    assert drain(source, source.create_enumerator(None)) == [Event(1, "x"), Event(3, "z")]  # level by default


def test_parquet_of_rich_types_and_without_a_type(tmp_path: Path) -> None:
    class Order(NamedTuple):
        at: datetime
        price: Decimal
        tags: list[str]
        inner: Inner
        more: dict[str, int]

    at = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    table = pa.table(
        {
            "at": pa.array([at], pa.timestamp("ns")),
            "price": pa.array([Decimal("1.50")]),
            "tags": [["a"]],
            "inner": [{"a": 1, "b": None}],
            "more": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    parquet(tmp_path / "a", table)
    source: Source = FileSource.parquet(tmp_path, Order)
    assert drain(source, source.create_enumerator(None)) == [Order(at, Decimal("1.50"), ["a"], Inner(1), {"k": 1})]
    untyped = FileSource.parquet(tmp_path)
    assert drain(untyped, untyped.create_enumerator(None))[0]["tags"] == ["a"]


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    write(tmp_path / "a", b"PAR1 nonsense PAR1", 1)
    with pytest.raises(RecordParseError, match="/a: not a readable Parquet file"):
        FileSource.parquet(tmp_path, Event).create_enumerator(None).plan(10)


# -- configuration -----------------------------------------------------------------------------------------------------


def test_configuration_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"/nowhere does not exist"):
        FileSource.json(tmp_path / "nowhere", Event).create_enumerator(None)
    with pytest.raises(ConfigError, match="is a URL"):
        FileSource.json("ftp://bucket/x", Event)
    with pytest.raises(ConfigError, match="'skip'"):
        FileSource.json(tmp_path, Event, on_parse_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="glob already"):
        FileSource.json(f"{tmp_path}/*.json", Event, pattern="*.json")
    with pytest.raises(ConfigError, match="one character"):
        FileSource.csv(tmp_path, Event, delimiter="||")
    with pytest.raises(RestoreRefused, match="version 7"):
        FileSource.json(tmp_path, Event).create_enumerator({"version": 7})


def test_paths_are_absolute_for_tasks_with_another_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in" / "a", lines(1), 1)
    source = FileSource.json("in", Event)
    planned = source.create_enumerator(None).plan(10)
    monkeypatch.chdir("/")
    assert read_all(source, planned)["files"] == events(1)


@pytest.mark.parametrize("kind", FORMATS)
def test_positions_are_small(kind: str, tmp_path: Path) -> None:
    for i in range(20):
        put(tmp_path, kind, f"{i}", [i], i)
    enumerator = source_of(kind, tmp_path).create_enumerator(None)
    enumerator.plan(1000)
    assert len(json.dumps(enumerator.position)) < 800
