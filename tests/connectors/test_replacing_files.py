"""Files that replace others: INSERT OVERWRITE, whatever dies, and wherever."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from connector_reading import Elements, json_round_trip

import forkpoint as fp
from forkpoint.connectors.files import replacing
from forkpoint.connectors.files.replacing import ReplacingFileSink
from forkpoint.connectors.files.sink import FileSink
from forkpoint.contract.sink import SinkContext
from forkpoint.errors import NotFound, OutputLost
from forkpoint.sql.errors import SqlError, Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import CreateTable, Insert
from forkpoint.table.session import Session
from forkpoint.testing import ABORT, PAUSE, Eof, TestSource, run_local
from forkpoint.types import type_of


class Order(NamedTuple):
    k: str | None
    v: int


class Died(BaseException):
    pass


def replacing_files(path: Path, bucket: str | None = None) -> ReplacingFileSink:
    return ReplacingFileSink.of(FileSink.json(path, Order, bucket=bucket)).for_job("job")


def published(sink: ReplacingFileSink, rows: list[Order], epoch: int) -> list[Any]:
    """The committables of an epoch, which is committed."""
    writer = sink.create_writer(SinkContext("out", "job", epoch, 0, f"{epoch:08x}", 1))
    writer.write(Elements(rows, type=type_of(Order)))
    found = json_round_trip(writer.prepare_commit())
    sink.check(found)
    sink.commit(found, epoch)
    return found


def visible(directory: Path) -> dict[str, list[str]]:
    """The lines of the files that readers see, by their directories."""
    found: dict[str, list[str]] = {}
    for file in sorted(directory.rglob("*")):
        parts = file.relative_to(directory).parts
        if file.is_file() and not any(part.startswith((".", "_")) for part in parts):
            found.setdefault("/".join(parts[:-1]), []).extend(file.read_text().splitlines())
    return {place: sorted(lines) for place, lines in found.items()}


def line(order: Order) -> str:
    return json.dumps(order._asdict(), separators=(",", ":"))


@contextmanager
def dying(at: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process dies before its file operation number ``at``."""
    count = 0

    def counted(operation: Any) -> Any:
        def called(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count > at:
                raise Died
            return operation(*arguments, **options)

        return called

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", counted(os.replace))
        patch.setattr(Path, "unlink", counted(Path.unlink))
        patch.setattr(replacing, "sync_directory", counted(replacing.sync_directory))
        patch.setattr(os, "fsync", counted(os.fsync))
        yield


@pytest.mark.parametrize("bucket", [None, "k"])
def test_a_swap_that_dies_anywhere_is_completed_by_the_next_driver(
    bucket: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = Order("a", 1), Order("b", 2)
    for died_at in range(40):
        root = tmp_path / str(died_at)
        for place in ("k=a", "k=z"):
            (root / place).mkdir(parents=True)
            (root / place / "old.jsonl").write_text("old\n")
        replacing_files(root, bucket).begin(2, "i")
        published(replacing_files(root, bucket), [a], 3)
        last = published(replacing_files(root, bucket), [b, a], 4)
        assert visible(root) == {"k=a": ["old"], "k=z": ["old"]}
        ended = False
        with dying(died_at, monkeypatch):
            try:
                replacing_files(root, bucket).finish(4, "i")
                ended = True
            except Died:
                pass
        for _ in range(2):
            again = replacing_files(root, bucket)  # the next start, and one more
            again.commit(last, 4)
            again.finish(4, "i")
            again.cleanup("out", "job", 9)
            if bucket is None:
                assert visible(root) == {"": [line(a), line(a), line(b)]}, died_at
            else:
                assert visible(root) == {"k=a": [line(a), line(a)], "k=b": [line(b)], "k=z": ["old"]}, died_at
        if ended:
            return
    raise AssertionError("it has more steps than that")


def test_drivers_that_wake_up_late_change_nothing(tmp_path: Path) -> None:
    """One had to finish a run, or begin it, that another run from the beginning has replaced."""
    first = replacing_files(tmp_path)
    first.begin(1, "i")
    last = published(first, [Order("a", 1)], 2)
    first.finish(2, "i")
    second = replacing_files(tmp_path)
    second.begin(3, "i")
    published(second, [Order("b", 1)], 4)
    first.begin(1, "i")
    with pytest.raises(NotFound):
        first.commit(last, 2)
    published(first, [Order("a", 9)], 3)  # what it had staged
    first.finish(2, "i")
    assert visible(tmp_path) == {"": [line(Order("a", 1))]}
    second.finish(4, "i")
    first.finish(2, "i")
    second.finish(4, "i")
    assert visible(tmp_path) == {"": [line(Order("b", 1))]}
    third = replacing_files(tmp_path)
    published(third, [Order("c", 1)], 6)  # and is given up
    third.begin(7, "i")
    third.finish(8, "i")
    assert visible(tmp_path) == {}
    another = replacing_files(tmp_path)  # of the same name, after the state root was deleted
    another.begin(1, "j")
    published(another, [Order("d", 1)], 2)
    third.finish(8, "i")
    assert visible(tmp_path) == {}
    another.finish(2, "j")
    assert visible(tmp_path) == {"": [line(Order("d", 1))]}
    (hidden,) = tmp_path.glob(".new-*")
    shutil.rmtree(hidden)
    with pytest.raises(OutputLost, match=r"where the files of .* waited for the end of the input, was removed"):
        another.finish(3, "j")


ADDED = "SELECT k, v + 1 FROM t UNION ALL SELECT * FROM orders"
CHANGED = (
    "SELECT t.k, COUNT(o.v) FROM t FULL JOIN orders AS o ON t.k = o.k GROUP BY t.k "
    "UNION ALL SELECT k, SUM(v) FROM orders GROUP BY k"
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("query", [ADDED, CHANGED])
def test_a_query_replaces_the_table_that_it_reads(query: str, seed: int, tmp_path: Path) -> None:
    rng, out = random.Random(seed), tmp_path / "out"
    out.mkdir()
    (out / "given.jsonl").write_text('{"k": "old", "v": 0}\n')
    before: list[dict[str, list[str]]] = []

    def job(env: fp.StreamExecutionEnvironment, source: TestSource) -> None:
        before.append(visible(out))
        session = Session(env)
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "orders", Order).uid("orders")
        session.add_stream("orders", stream)
        table = f"CREATE TABLE t (k STRING, v BIGINT) WITH ('connector'='filesystem', 'path'='{out}', 'format'='json')"
        create, insert = (next(iter(parse(Text(each)))) for each in (table, f"INSERT OVERWRITE t {query}"))
        assert isinstance(create, CreateTable)
        assert isinstance(insert, Insert)
        session.create_table(create)
        session.insert(insert)

    rows = [Order(rng.choice(["a", "b", "old"]), at) for at in range(9)]
    script = [part for row in rows for part in (*rng.choice([[], [PAUSE], [ABORT], [PAUSE, Eof(savepoint=True)]]), row)]
    for _ in range(script.count(Eof(savepoint=True)) + 1):
        run_local(job, script, state_root=str(tmp_path / "state"), epochs=2)
    expected = [*rows, Order("old", 1)]
    if query == CHANGED:
        sums = {k: sum(row.v for row in rows if row.k == k) for k in {row.k for row in rows}}
        old = sum(row.k == "old" for row in rows)
        expected = [Order("old", old), *([Order(None, 9 - old)] if old < 9 else []), *(Order(k, v) for k, v in sums.items())]
    assert visible(out) == {"": sorted(map(line, expected))}
    assert all(each == {"": ['{"k": "old", "v": 0}']} for each in before)


def test_in_batch_mode_only_final_rows_are_added(tmp_path: Path) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_max_epoch_rows(1)
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("orders", env.from_collection([Order("a", 1), Order("b", 2), Order("a", 3)], Order))
    table = f"CREATE TABLE t (k STRING, a ARRAY<BIGINT>) WITH ('connector'='filesystem', 'path'='{tmp_path}', 'format'='json')"
    tables.execute_sql(table)
    insert = "INSERT INTO t SELECT k, ARRAY_AGG(v) FROM orders GROUP BY k"
    with pytest.raises(SqlError, match=r"takes added rows only, .* or SET 'execution.runtime-mode' = 'batch' if its input ends"):
        tables.execute_sql(insert)
    tables.execute_sql("SET 'execution.runtime-mode' = 'batch'")
    assert "Final rows; keeps rows until the input has ended  [adds rows]" in tables.explain_sql(insert)
    tables.execute_sql(insert).wait()
    assert visible(tmp_path) == {"": ['{"k":"a","a":[1,3]}', '{"k":"b","a":[2]}']}


def test_a_partition_is_replaced_also_by_nothing(tmp_path: Path) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("orders", env.from_collection([Order("a", 1), Order("b", 2)], Order))
    options = f"'connector'='filesystem', 'path'='{tmp_path}', 'format'='json'"
    tables.execute_sql(f"CREATE TABLE t (d DATE, k STRING, h BIGINT, v BIGINT) PARTITIONED BY (d, h) WITH ({options})")
    found = []
    for statement in (
        "INSERT INTO t PARTITION (d = '2020-01-02', h = 7) SELECT k, v FROM orders",
        "INSERT OVERWRITE t PARTITION (d = '2020-01-02') (v, h) SELECT v, v + 6 FROM orders WHERE v > 1",
        "INSERT OVERWRITE t PARTITION (h = 7, d = '2020-01-02') SELECT k, v FROM orders WHERE v > 2",
    ):
        tables.execute_sql(statement).wait()
        found.append({place: len(lines) for place, lines in visible(tmp_path).items()})
    assert found == [{"d=2020-01-02/h=7": 2}, {"d=2020-01-02/h=7": 2, "d=2020-01-02/h=8": 1}, {"d=2020-01-02/h=8": 1}]
    assert visible(tmp_path) == {"d=2020-01-02/h=8": ['{"d":"2020-01-02","k":null,"h":8,"v":2}']}


def test_what_cannot_be_replaced_is_refused() -> None:
    tables = fp.StreamTableEnvironment.create()
    for name, options in {
        "endless": "'connector' = 'datagen'",
        "files": "'connector' = 'filesystem', 'path' = 'x', 'format' = 'json'",
        "far": "'connector' = 'filesystem', 'path' = 's3://x/y', 'format' = 'json'",
        "printed": "'connector' = 'print'",
    }.items():
        tables.execute_sql(f"CREATE TABLE {name} (k STRING) WITH ({options})")
    options = "'connector' = 'filesystem', 'path' = 'x', 'format' = 'json'"
    tables.execute_sql(f"CREATE TABLE parts (k STRING, d DATE) PARTITIONED BY (d) WITH ({options})")
    for statement, problem in {
        "INSERT OVERWRITE files SELECT * FROM endless": "INSERT OVERWRITE is for queries whose input ends",
        "INSERT OVERWRITE printed SELECT * FROM files": "connector 'print' cannot replace the rows of a table; use INSERT INTO",
        "INSERT OVERWRITE far SELECT * FROM files": "INSERT OVERWRITE: files of an object store or HDFS cannot be replaced yet",
        "INSERT OVERWRITE files PARTITION (k = 'a') SELECT 1": "table 'files' is not PARTITIONED BY 'k'",
        "INSERT INTO parts PARTITION (d = 'x') SELECT 'a'": "PARTITION: .*'x' is no DATE",
        "INSERT INTO parts PARTITION (d = '2020-01-02') (k, d) SELECT 'a', 'b'": "column 'd' has a value in PARTITION",
        "INSERT INTO parts PARTITION (d = '2020-01-02') SELECT 'a', 'b'": "but table 'parts' takes 1 \\(k\\)",
    }.items():
        with pytest.raises(SqlError, match=problem):
            tables.execute_sql(statement)
    for one, other in (("OVERWRITE", "INTO"), ("INTO", "OVERWRITE"), ("OVERWRITE", "OVERWRITE")):
        session = Session(fp.StreamExecutionEnvironment.get_execution_environment(), catalog=tables._session.catalog)
        first, second = parse(Text(f"INSERT {one} files VALUES ('a'); INSERT {other} files VALUES ('b')"))
        assert isinstance(first, Insert)
        assert isinstance(second, Insert)
        session.insert(first)
        with pytest.raises(SqlError, match="a job that overwrites table 'files' has one INSERT into it; use UNION ALL"):
            session.insert(second)
