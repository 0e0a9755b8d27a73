"""The file sink: every result visible once, whatever is killed between writing and committing."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connector_reading import Elements, json_round_trip
from hypothesis import given
from hypothesis import strategies as st

from example_counts import examples
from forkpoint.connectors.files.sink import FileSink
from forkpoint.connectors.files.source import FileSource
from forkpoint.contract.sink import Sink, SinkContext, SinkWriter
from forkpoint.errors import ConfigError, NotFound, OutputLost, StorageError, TypeNotSupported, UserFunctionError
from forkpoint.types import Row, Types, type_of

FORMATS = ["parquet", "json", "csv", "text"]


class Reading(NamedTuple):
    room: int
    level: float
    day: date = date(2026, 1, 1)


def reading(i: int) -> Reading:
    return Reading(i, i / 2, date(2026, 1, 1 + i % 3))


def writer_of(
    sink: Sink, epoch: int = 1, subtask: int = 0, attempt: str = "0", job: str = "job", generation: int = 1
) -> SinkWriter:
    shipped: Sink = cloudpickle.loads(cloudpickle.dumps(sink))
    return shipped.create_writer(SinkContext("out", job, epoch, subtask, attempt, generation))


def prepared(sink: Sink, values: list[Any], type: Any = Reading, **context: Any) -> list[Any]:
    writer = writer_of(sink, **context)
    for value in values:  # an element a batch
        writer.write(Elements([value], type=None if type is None else type_of(type)))
    return json_round_trip(writer.prepare_commit())  # type: ignore[no-any-return]


def make(kind: str, path: Path, **options: Any) -> FileSink:
    return getattr(FileSink, kind)(path, **options)  # type: ignore[no-any-return]


def visible(directory: Path) -> list[str]:
    found = (p for p in directory.rglob("*") if p.is_file())
    return sorted(str(p.relative_to(directory)) for p in found if not p.name.startswith("."))


def hidden(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.rglob(".*") if p.is_file())


def rows(kind: str, directory: Path) -> list[Any]:
    """What a source makes of the sink's directory: the other half of each format."""
    source = (
        FileSource.text(directory, bounded=True)
        if kind == "text"
        else getattr(FileSource, kind)(directory, Reading, bounded=True)
    )
    reader, enumerator, out = source.create_reader(), source.create_enumerator(None), []
    while planned := enumerator.plan(1000):
        for part in planned:
            for run in reader.read(part):
                out += source.output_type().from_columns(run.columns)
    return sorted(out)


def expected(kind: str, values: list[Reading]) -> list[Any]:
    return sorted(map(str, values)) if kind == "text" else sorted(values)


@pytest.mark.parametrize("kind", FORMATS)
def test_nothing_is_visible_before_the_commit_and_all_of_it_after(kind: str, tmp_path: Path) -> None:
    sink = make(kind, tmp_path / "out")
    committables = prepared(sink, [reading(i) for i in range(5)], epoch=42, subtask=3, attempt="17")
    assert visible(tmp_path) == []
    assert len(hidden(tmp_path)) == 1
    assert hidden(tmp_path)[0].startswith(".part-000000000042-3-17.")
    assert hidden(tmp_path)[0].endswith(".inprogress")
    assert set(committables[0]) == {"staged", "final"}
    sink.commit(committables, 42)
    extension = {"json": "jsonl", "text": "txt"}.get(kind, kind)
    assert visible(tmp_path) == [f"out/part-000000000042-3-17.{extension}"]
    assert hidden(tmp_path) == []
    assert rows(kind, tmp_path / "out") == expected(kind, [reading(i) for i in range(5)])


def test_no_elements_no_file(tmp_path: Path) -> None:
    sink = make("parquet", tmp_path / "out")
    writer = writer_of(sink)
    writer.write(Elements([], type=type_of(Reading)))
    assert writer.prepare_commit() == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_commit_may_be_repeated_and_completed(kind: str, tmp_path: Path) -> None:
    sink = make(kind, tmp_path)
    committables = prepared(sink, [reading(1)]) + prepared(sink, [reading(2)], subtask=1)
    sink.commit(committables[:1], 1)  # killed in the middle
    again = make(kind, tmp_path)
    again.commit(committables, 1)
    again.commit(committables, 1)
    again.cleanup("out", "job", 1)
    assert rows(kind, tmp_path) == expected(kind, [reading(1), reading(2)])


@pytest.mark.parametrize("kind", FORMATS)
def test_of_two_attempts_one_is_visible(kind: str, tmp_path: Path) -> None:
    sink = make(kind, tmp_path)
    zombie = writer_of(sink, attempt="a")
    zombie.write(Elements([reading(1)], type=type_of(Reading)))
    committables = prepared(sink, [reading(1), reading(2)], attempt="b")
    zombie.prepare_commit()  # it comes to its end, but no manifest names it
    sink.commit(committables, 1)
    assert rows(kind, tmp_path) == expected(kind, [reading(1), reading(2)])
    sink.cleanup("out", "job", 1)
    assert hidden(tmp_path) == []
    assert rows(kind, tmp_path) == expected(kind, [reading(1), reading(2)])


def test_an_attempt_under_a_name_that_was_left_behind_starts_anew(tmp_path: Path) -> None:
    sink = make("json", tmp_path)
    zombie = writer_of(sink)
    zombie.write(Elements([reading(1)] * 10, type=type_of(Reading)))
    committables = prepared(sink, [reading(2)])
    zombie.prepare_commit()
    sink.commit(committables, 1)
    assert rows("json", tmp_path) == [reading(2)]


def test_cleanup_leaves_other_jobs_and_newer_runs_alone(tmp_path: Path) -> None:
    sink = make("json", tmp_path, bucket=lambda e: f"room-{e.room}")
    for epoch, job, generation in ((1, "job", 1), (2, "job", 2), (9, "job", 10), (3, "job", 3), (1, "other", 1)):
        prepared(sink, [reading(1)], epoch=epoch, job=job, generation=generation)
    old = tmp_path / "room-1" / hidden(tmp_path)[1].replace(".g1.", ".").replace("000001-", "000004-")
    old.touch()  # as versions that named no generation staged it
    sink.cleanup("out", "job", 2)
    assert [name[:19] for name in hidden(tmp_path)] == [
        ".part-000000000001-",
        ".part-000000000003-",
        ".part-000000000009-",
    ]
    sink.cleanup("other sink", "job", 99)
    assert len(hidden(tmp_path)) == 3
    sink.cleanup("out", "job", 10)
    assert len(hidden(tmp_path)) == 1  # the other job's
    sink.cleanup("out", "other", 1)
    assert hidden(tmp_path) == []


def test_abort_removes_what_was_staged(tmp_path: Path) -> None:
    sink = make("parquet", tmp_path)
    writer = writer_of(sink)
    writer.write(Elements([reading(1)], type=type_of(Reading)))
    writer.abort()
    assert hidden(tmp_path) == visible(tmp_path) == []


def test_a_staged_file_that_the_driver_does_not_see_is_refused_before_the_manifest(tmp_path: Path) -> None:
    sink = make("json", tmp_path)
    committables = prepared(sink, [reading(1)])
    sink.check(committables)
    Path(committables[0]["staged"]).unlink()
    with pytest.raises(ConfigError, match=r"does not see it.*same directory for the driver and all executors") as e:
        sink.check(committables)
    assert committables[0]["staged"] in str(e.value)


@examples(80)
@given(data=st.data())
def test_what_was_published_is_told_from_what_is_lost(data: st.DataObject) -> None:
    """A commit that was cut short, of which a reader has taken anything: what is staged still is published. Whatever else
    is missing was taken, except where a file was removed before one that came before it was published."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        sink = make("text", root)
        files = data.draw(st.integers(1, 5))
        committables = [c for n in range(files) for c in prepared(sink, [n], type=int, subtask=n)]
        published = data.draw(st.integers(0, files))
        sink.commit(committables[:published], 1)
        taken = data.draw(st.sets(st.integers(0, published - 1))) if published else set()
        removed = data.draw(st.sets(st.integers(published, files - 1), max_size=1)) if published < files else set()
        seen = []
        for n in taken:
            seen.append(Path(committables[n]["final"]).read_text())
            Path(committables[n]["final"]).unlink()
        for n in removed:
            Path(committables[n]["staged"]).unlink()
        staged_before = any(n > published for n in removed)
        try:
            sink.commit(committables, 1)
            assert not taken
            assert not removed
        except OutputLost as error:
            told = str(error)
            assert staged_before
            assert all(committables[n]["final"] in told for n in removed)
            Path(committables[next(iter(removed))]["final"]).touch()  # the remedy
            with suppress(NotFound):
                sink.commit(committables, 1)
        except NotFound:
            assert taken or removed
            assert not staged_before
        seen += [path.read_text() for path in root.glob("part-*")]
        assert sorted("".join(seen).split()) == [str(n) for n in range(files) if n not in removed]
        assert hidden(root) == []


def test_jobs_that_share_a_directory_do_not_meet(tmp_path: Path) -> None:
    sink = make("json", tmp_path)
    first = prepared(sink, [reading(1)], job="fork", attempt="a")
    second = prepared(sink, [reading(2)], attempt="b")
    sink.commit(first, 1)
    sink.commit(second, 1)
    assert rows("json", tmp_path) == [reading(1), reading(2)]


def test_files_of_another_history_are_not_overwritten(tmp_path: Path) -> None:
    sink = make("json", tmp_path)
    first = prepared(sink, [reading(1)], job="fork")
    second = prepared(sink, [reading(2)])
    sink.commit(first, 1)
    with pytest.raises(StorageError, match="already exists"):
        sink.commit(second, 1)
    with pytest.raises(ConfigError, match=r"part-000000000001-0-0\.jsonl already exists.*prefix="):
        prepared(sink, [reading(3)])
    assert rows("json", tmp_path) == [reading(1)]
    Path(first[0]["final"]).rename(tmp_path / "kept.jsonl")  # the remedy
    sink.commit(second, 1)
    other = make("json", tmp_path, prefix="fork")  # the other remedy
    other.commit(prepared(other, [reading(3)]), 1)
    assert rows("json", tmp_path) == [reading(1), reading(2), reading(3)]


@examples(30)
@given(st.data())
def test_crashes_anywhere_leave_each_result_once(data: st.DataObject) -> None:
    """Epochs of two subtasks; the driver or a task dies at drawn points, and all starts again from the manifests."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        kind = data.draw(st.sampled_from(FORMATS))
        sink = make(kind, root, bucket=data.draw(st.sampled_from([None, ["day"], lambda e: f"r{e.room % 2}"])))
        manifests: list[list[Any]] = []
        committed: list[Reading] = []
        record, attempt = 0, 0
        for _ in range(data.draw(st.integers(1, 6))):
            epoch = len(manifests) + 1
            parts = [data.draw(st.integers(0, 3)) for _ in range(2)]
            values = [[reading(record + i + s * 10) for i in range(n)] for s, n in enumerate(parts)]
            committables: list[Any] = []
            for subtask, mine in enumerate(values):
                for _ in range(data.draw(st.integers(0, 2))):  # attempts that die, at their start or after their end
                    attempt += 1
                    writer = writer_of(sink, epoch, subtask, str(attempt))
                    writer.write(Elements(mine, type=type_of(Reading)))
                    if data.draw(st.booleans()):
                        writer.prepare_commit()
                attempt += 1
                committables += prepared(sink, mine, epoch=epoch, subtask=subtask, attempt=str(attempt))
            if data.draw(st.booleans()):  # the driver dies before the manifest: the epoch never happened
                if manifests:
                    sink.commit(manifests[-1], epoch - 1)
                sink.cleanup("out", "job", 1)
                continue
            manifests.append(committables)
            record += 100
            cut = data.draw(st.integers(0, len(committables)))
            sink.commit(committables[:cut], epoch)  # it dies here, or not
            sink.commit(committables, epoch)
            if data.draw(st.booleans()):
                sink.cleanup("out", "job", 1)
            committed += [v for part in values for v in part]
            assert rows(kind, root) == expected(kind, committed)
        sink.cleanup("out", "job", 1)
        assert hidden(root) == []


# -- buckets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_buckets_by_a_function(kind: str, tmp_path: Path) -> None:
    sink = make(kind, tmp_path, bucket=lambda e: f"{e.day:%Y/%m-%d}")
    values = [reading(i) for i in range(7)]
    writer = writer_of(sink)
    writer.write(Elements(values[:4], type=type_of(Reading)))
    writer.write(Elements(values[4:], type=type_of(Reading)))
    sink.commit(writer.prepare_commit(), 1)
    assert [str(Path(p).parent) for p in visible(tmp_path)] == ["2026/01-01", "2026/01-02", "2026/01-03"]
    assert rows(kind, tmp_path / "2026" / "01-02") == expected(kind, [reading(1), reading(4)])
    assert rows(kind, tmp_path) == expected(kind, values)


@pytest.mark.parametrize("kind", FORMATS)
def test_buckets_by_fields_are_named_alike_from_columns_and_elements(kind: str, tmp_path: Path) -> None:
    class Stay(NamedTuple):
        who: str | None
        room: int

    values = [Stay("a/b", 1), Stay(None, 1), Stay("é x", 2), Stay("a/b", 1), Stay("", 1)]  # Spark reads no who=
    sink = make(kind, tmp_path, bucket=["room", "who"])
    sink.commit(prepared(sink, values, Stay), 1)
    assert sorted(str(Path(p).parent) for p in visible(tmp_path)) == [
        "room=1/who=__HIVE_DEFAULT_PARTITION__",
        "room=1/who=a%2Fb",
        "room=2/who=é x",
    ]
    with pytest.raises(ConfigError, match="no field 'floor'"):
        prepared(make(kind, tmp_path / "x", bucket="floor"), values, Stay)


@pytest.mark.parametrize("name", ["../up", "/abs", "a//b", ".hid", "a/_b", "a/", None, 3])
def test_bad_bucket_names(name: Any, tmp_path: Path) -> None:
    with pytest.raises(UserFunctionError, match="must return a relative path"):
        prepared(make("json", tmp_path, bucket=lambda e: name), [reading(1)])
    assert hidden(tmp_path) == []


def test_a_failing_bucket_function_names_the_element(tmp_path: Path) -> None:
    with pytest.raises(UserFunctionError, match=r"failed on Reading\(room=1.*ZeroDivisionError"):
        prepared(make("json", tmp_path, bucket=lambda e: str(1 // 0)), [reading(1)])


# -- formats -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bucket", [None, ["room"]])
def test_columns_go_to_parquet_without_becoming_objects(bucket: Any, tmp_path: Path) -> None:
    type = type_of(Reading)
    table = pa.RecordBatch.from_arrays(type.to_columns([reading(i) for i in range(4)]), schema=type.arrow_schema)
    sink = FileSink.parquet(tmp_path, bucket=bucket)
    batch = Elements(table=table, type=type)
    writer = writer_of(sink)
    writer.write(batch)
    sink.commit(writer.prepare_commit(), 1)
    assert not batch.decoded
    assert rows("parquet", tmp_path) == [reading(i) for i in range(4)]


def test_small_batches_become_one_row_group(tmp_path: Path) -> None:
    sink = FileSink.parquet(tmp_path, compression="snappy")
    sink.commit(prepared(sink, [reading(i) for i in range(50)]), 1)
    metadata = pq.read_metadata(tmp_path / visible(tmp_path)[0])
    assert (metadata.num_rows, metadata.num_row_groups) == (50, 1)
    assert metadata.row_group(0).column(0).compression == "SNAPPY"


def test_the_declared_type_decides_the_columns(tmp_path: Path) -> None:
    sink = FileSink.parquet(tmp_path, Types.ROW_NAMED(["a", "b"], [Types.DOUBLE(), Types.STRING()]))
    sink.commit(prepared(sink, [(1, "x"), (2.5, "y")], None), 1)
    assert pq.read_table(tmp_path / visible(tmp_path)[0]).to_pydict() == {"a": [1.0, 2.5], "b": ["x", "y"]}


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_columns_are_inferred_without_a_type(kind: str, tmp_path: Path) -> None:
    sink = make(kind, tmp_path)
    sink.commit(prepared(sink, [reading(1), reading(2)], None), 1)
    assert rows(kind, tmp_path) == [reading(1), reading(2)]
    with pytest.raises(TypeNotSupported):
        prepared(make(kind, tmp_path / "mixed"), [reading(1), "text"], None)


class Color(Enum):
    RED = 1.5


class Inner(NamedTuple):
    a: int


@dataclass
class Outer:
    inner: Inner
    inners: list[Inner]
    color: Color
    price: Decimal
    at: datetime


class Wrapped(msgspec.Struct):
    outer: Outer


def test_json_has_objects_for_records_however_deep(tmp_path: Path) -> None:
    at = datetime.fromisoformat("2026-01-02T03:04:05")
    values: list[Any] = [
        Wrapped(Outer(Inner(1), [Inner(2)], Color.RED, Decimal("1.10"), at)),
        Row(a=1, b=Row(2, 3)),
        {"k": Inner(4)},
        (1, "plain tuple"),
        {3},
        b"x",
        None,
    ]
    sink = FileSink.json(tmp_path)
    sink.commit(prepared(sink, values, None), 1)
    text = (tmp_path / visible(tmp_path)[0]).read_text()
    outer = {
        "inner": {"a": 1},
        "inners": [{"a": 2}],
        "color": "RED",
        "price": "1.10",
        "at": "2026-01-02T03:04:05",
    }
    assert [json.loads(line) for line in text.splitlines()] == [
        {"outer": outer},
        {"a": 1, "b": [2, 3]},
        {"k": {"a": 4}},
        [1, "plain tuple"],
        [3],
        "eA==",
        None,
    ]


def test_json_is_the_same_from_elements_and_from_columns(tmp_path: Path) -> None:
    type = type_of(Reading)
    table = pa.RecordBatch.from_arrays(type.to_columns([reading(1)]), schema=type.arrow_schema)
    texts = []
    for i, batch in enumerate([Elements([reading(1)]), Elements([reading(1)], type=type), Elements(None, table, type)]):
        sink = FileSink.json(tmp_path / str(i))
        writer = writer_of(sink)
        writer.write(batch)
        sink.commit(writer.prepare_commit(), 1)
        texts.append((tmp_path / str(i) / "part-000000000001-0-0.jsonl").read_text())
    assert texts == ['{"room":1,"level":0.5,"day":"2026-01-02"}\n'] * 3


def test_csv_takes_plain_fields_only(tmp_path: Path) -> None:
    class Tagged(NamedTuple):
        tags: list[str]

    with pytest.raises(ConfigError, match=r"tags .* cannot be a CSV column"):
        prepared(FileSink.csv(tmp_path), [Tagged(["x"])], Tagged)
    assert hidden(tmp_path) == []
    sink = FileSink.csv(tmp_path, delimiter=";")
    sink.commit(prepared(sink, [("a;b", 1)], tuple[str, int]), 1)
    assert (tmp_path / visible(tmp_path)[0]).read_text() == '"f0";"f1"\n"a;b";1\n'


def test_configuration_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a URL"):
        FileSink.json("ftp://bucket/out")
    with pytest.raises(ConfigError, match="prefix"):
        FileSink.json(tmp_path, prefix="_part")
    with pytest.raises(ConfigError, match="prefix"):
        FileSink.json(tmp_path, prefix="a/b")
