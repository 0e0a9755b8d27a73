"""Records that a source cannot read go to a side output, with where they are and what is in them."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connector_reading import batches, side_elements
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.testing import ABORT, PAUSE, Eof, run_local
from forkpoint.types import type_of

BAD = fp.OutputTag("bad", fp.DeadLetter)


class Event(NamedTuple):
    id: int
    text: str = ""


def letters(source: fp.Source[Any]) -> list[fp.DeadLetter]:
    return side_elements(source, source.create_enumerator(None).plan(1000, 1))


def test_a_letter_says_where_its_record_is_and_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"id": 1}\n{"id": "x"}\n\n{"id": 2}\r\n{"id": \xff\r\n{"id": 3}\n')
    assert letters(fp.FileSource.json(tmp_path, Event, bounded=True, on_parse_error=BAD)) == [
        fp.DeadLetter("uid", {"file": f"{tmp_path}/a.json", "line": line}, data, None, problem, datetime(1970, 1, 1, tzinfo=UTC))
        for line, data, problem in [
            ("2", b'{"id": "x"}', "id: expected int, got 'x'"),
            ("5", b'{"id": \xff', "not JSON on one line (JSON is malformed: invalid character (byte 7))"),
        ]
    ]


@pytest.mark.parametrize(
    ("name", "content", "make", "expected"),
    [
        ("a.csv", b"id,text\n1,a\nx,b\n2,c,d\n", fp.FileSource.csv, [("3", b"x,b"), ("4", b"2,c,d")]),
        ("a.json.gz", gzip.compress(mtime=0, data=b'{"id": 1}\nno\n'), fp.FileSource.json, [("2", b"no")]),
    ],
)
def test_lines(tmp_path: Path, name: str, content: bytes, make: Any, expected: list[tuple[str, bytes]]) -> None:
    (tmp_path / name).write_bytes(content)
    found = letters(make(tmp_path, Event, bounded=True, on_parse_error=BAD))
    assert [(letter.place["line"], letter.data) for letter in found] == expected


def test_records_over_several_lines(tmp_path: Path) -> None:
    content = b'id,text\r\n1,"a\r\nb"\r\n"x","c\r\nd"\r\n2,"e"\r\n3,"f" g\r\n4,h\r\n'
    (tmp_path / "a.csv").write_bytes(content)
    source = fp.FileSource.csv(tmp_path, Event, bounded=True, newlines_in_values=True, on_parse_error=BAD)
    assert [(letter.place["line"], letter.data) for letter in letters(source)] == [
        ("4", b'"x","c\r\nd"'),
        ("7", b'3,"f" g\r\n4,h\r\n'),
    ]


def test_text_and_rows(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\n\xff\nb\n")
    (letter,) = letters(fp.FileSource.text(tmp_path, pattern="*.txt", bounded=True, on_parse_error=BAD))
    assert (letter.place["line"], letter.data) == ("2", b"\xff")
    pq.write_table(pa.table({"id": [1, None], "text": ["a", "b"]}), tmp_path / "a.parquet")
    source = fp.FileSource.parquet(tmp_path, Event, pattern="*.parquet", bounded=True, on_parse_error=BAD)
    (letter,) = letters(source)
    assert (letter.place["row"], letter.data) == ("1", b"{'id': None, 'text': 'b'}")


def job(directory: Path, script: bool) -> Any:
    """Events and bad records, beside a script that says what happens to the job."""

    def build(env: fp.StreamExecutionEnvironment, *scripts: Any) -> dict[str, fp.DataStream]:
        for events in scripts:
            stream = env.from_source(events, fp.WatermarkStrategy.no_watermarks(), "script").uid("script")
            stream.sink_to(fp.DiscardSink()).uid("nowhere")
        source = fp.FileSource.json(directory, Event, bounded=not script, on_parse_error=BAD)
        read = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("events")
        counted = read.get_side_output(BAD).key_by(lambda letter: letter.place["file"], str).process(Counted())
        return {"good": read.map(lambda e: e.id, int), "bad": counted.uid("counted")}

    return build


class Counted(fp.KeyedProcessFunction):
    def open(self, context: fp.RuntimeContext) -> None:
        self.count = context.get_state(fp.ValueStateDescriptor("count", int))

    def process_element(self, value: fp.DeadLetter, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield (value.source, value.data, count)


def test_letters_come_once_through_failures_and_savepoints(tmp_path: Path) -> None:
    directory, state = tmp_path / "in", tmp_path / "state"
    directory.mkdir()
    lines = [f'{{"id": {n}}}' if n % 3 else f"bad {n}" for n in range(20)]
    (directory / "a.json").write_text("\n".join(lines[:12]) + "\n")
    script = [PAUSE, ABORT, PAUSE, PAUSE, Eof(savepoint=True)]
    first = run_local(job(directory, script=True), script, epochs=4, parallelism=2, state_root=state)
    assert (first.deaths, len(first.outputs["good"])) == (1, 8)
    (directory / "a2.json").write_text("\n".join(lines[12:]) + "\n")
    second = run_local(
        job(directory, script=False),
        epochs=3,
        parallelism=3,
        state_root=state,
        job_name="restored",
        restore=fp.RestoreOptions(first.savepoint, allow_non_restored=True),
    )
    assert sorted(first.outputs["good"] + second.outputs["good"]) == [n for n in range(20) if n % 3]
    assert first.outputs["bad"] == [("events", f"bad {n}".encode(), n // 3 + 1) for n in range(0, 12, 3)]
    assert second.outputs["bad"] == [("events", f"bad {n}".encode(), n // 3 - 3) for n in range(12, 20, 3)]


def test_a_savepoint_of_a_job_without_letters_is_restored_with_them(tmp_path: Path) -> None:
    directory, state = tmp_path / "in", tmp_path / "state"
    directory.mkdir()
    (directory / "a.json").write_text('{"id": 1}\nbad\n')

    def build(on_parse_error: Any, env: fp.StreamExecutionEnvironment, script: Any) -> dict[str, fp.DataStream]:
        env.from_source(script, fp.WatermarkStrategy.no_watermarks(), "script").uid("script").sink_to(fp.DiscardSink()).uid(
            "nowhere"
        )
        source = fp.FileSource.json(directory, Event, on_parse_error=on_parse_error)
        read = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("events")
        if on_parse_error == "skip":
            return {"good": read}
        return {"good": read, "bad": read.get_side_output(BAD)}

    options: dict[str, Any] = {"state_root": state, "job_name": "job"}
    script = [PAUSE, Eof(savepoint=True), PAUSE, Eof(savepoint=True), PAUSE, Eof(savepoint=True)]
    first = run_local(lambda env, s: build("skip", env, s), script, **options)
    assert first.outputs == {"good": [Event(1)]}
    (directory / "b.json").write_text('{"id": 2}\nbad\n')
    second = run_local(lambda env, s: build(BAD, env, s), script, **options, restore=first.savepoint)
    assert (second.outputs["good"], len(second.outputs["bad"])) == ([Event(2)], 1)
    (directory / "c.json").write_text('{"id": 3}\nbad\n')
    third = run_local(lambda env, s: build("skip", env, s), script, **options, restore=second.savepoint)
    assert third.outputs == {"good": [Event(3)]}


LINES = st.lists(
    st.one_of(
        st.integers(0, 9).map(lambda n: json.dumps({"id": n, "text": "t"}).encode()),
        st.binary(max_size=6).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b"")),
    ),
    min_size=1,
    max_size=20,
)


@given(lines=LINES, rows=st.integers(1, 8))
def test_every_record_is_an_element_or_a_letter(tmp_path_factory: Any, lines: list[bytes], rows: int) -> None:
    directory = tmp_path_factory.mktemp("lines")
    (directory / "a.json").write_bytes(b"".join(line + b"\n" for line in lines))
    source = fp.FileSource.json(directory, Event, bounded=True, on_parse_error=BAD)
    enumerator, found = source.create_enumerator(None), []
    while not enumerator.finished:
        for each in enumerator.plan(rows, 2):
            for batch in batches(source, each):
                run: list[Any] = type_of(Event).from_columns(batch.elements.columns)  # type: ignore[union-attr]
                for side in batch.sides:
                    for letter, before in reversed(list(zip(side.elements, side.before.tolist(), strict=True))):
                        run.insert(before, letter)
                found += run
    expected = [line for line in lines if line.strip()]
    assert len(found) == len(expected)
    for line, one in zip(expected, found, strict=True):
        if isinstance(one, fp.DeadLetter):
            assert one.data == line
            assert lines[int(one.place["line"]) - 1] == line
        else:
            assert one.id == json.loads(line)["id"]


def test_what_is_given_for_parse_errors_is_checked(tmp_path: Path) -> None:
    with pytest.raises(fp.ConfigError, match=r"FileSource: on_parse_error is an OutputTag of .*give OutputTag"):
        fp.FileSource.json(tmp_path, Event, on_parse_error=fp.OutputTag("bad", str))  # type: ignore[arg-type]
    with pytest.raises(fp.ConfigError, match="'fail' or 'skip', or an OutputTag of DeadLetter"):
        fp.FileSource.json(tmp_path, Event, on_parse_error="ignore")  # type: ignore[arg-type]


@pytest.mark.spark
@pytest.mark.usefixtures("session")
def test_letters_on_spark(tmp_path: Path) -> None:
    lines = [f'{{"id": {n}}}' if n % 3 else f"bad {n}" for n in range(100)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("\n".join(lines) + "\n")
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "spark"})
    env.set_parallelism(2).set_max_epoch_rows(30)
    source = fp.FileSource.json(tmp_path / "in", Event, bounded=True, on_parse_error=BAD)
    read = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in")
    read.sink_to(fp.FileSink.json(tmp_path / "good"))
    bad = read.get_side_output(BAD).key_by(lambda letter: letter.place["line"], str)
    found = sorted(bad.map(lambda letter: (int(letter.place["line"]), letter.data)).execute_and_collect())
    assert found == [(n + 1, f"bad {n}".encode()) for n in range(0, 100, 3)]
    good = [json.loads(line)["id"] for file in (tmp_path / "good").glob("*") for line in file.read_text().splitlines()]
    assert sorted(good) == [n for n in range(100) if n % 3]
