"""Checkpoints of real queries become savepoints: each state equals what Spark's own source reads, and programs take it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import forkpoint as fp
import queries
from forkpoint.api.launch import Launch
from forkpoint.cli import main
from forkpoint.errors import ConfigError
from forkpoint.graph.options import RestoreOptions
from forkpoint.savepoint.inspect.reader import SavepointReader
from forkpoint.spark.stream_checkpoint import craft
from forkpoint.types import Types, type_of
from forkpoint_spark_checkpoints.importer import ImportedCheckpoint, import_spark_checkpoint, inspect_spark_checkpoint
from forkpoint_spark_checkpoints.shapes import ImportedOperator, ImportedState
from queries import EVENTS, HOUR_MS, MINUTE_MS, START_MS, on_rocksdb, run, timed, words

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("events")
    for file in range(3):
        queries.write(directory, file)
    return directory


def moment(minute: int) -> datetime:
    return datetime.fromtimestamp(START_MS / 1000 + 60 * minute, UTC)


def entries(savepoint: SavepointReader, uid: str, name: str) -> dict[Any, Any]:
    return {entry.key: entry.value for entry in savepoint.state(uid, name).rows()}


def by_word() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for word, n, _ in EVENTS:
        found.setdefault(word, []).append(n)
    return found


class Totals(NamedTuple):
    n: int
    total: int
    mean: float


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        on_rocksdb(**{"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}),
        on_rocksdb(**{"spark.sql.streaming.offsetLog.formatVersion": "2"}),
    ],
    ids=["hdfs", "rocksdb with ids", "rocksdb, offsets v2"],
)
def test_aggregations(session: SparkSession, events: Path, tmp_path: Path, settings: dict[str, str]) -> None:
    def query() -> DataFrame:
        return words(session, events).groupBy("word").agg(f.count("*"), f.sum("n"), f.avg("n"))

    checkpoint = run(session, tmp_path / "checkpoint", query, settings=settings)
    shape = ImportedState("totals", value="struct(count AS n, sum AS total, sum_2 / count_2 AS mean)")
    operators = {0: ImportedOperator("counts", {"state": shape})}
    made = import_spark_checkpoint(
        checkpoint,
        tmp_path / "savepoint",
        job="j",
        sources="words",
        operators=operators,
        spark=session,
        max_parallelism=16,
    )
    savepoint = made.savepoint
    savepoint.verify()
    assert savepoint.metadata.max_parallelism == 16
    assert (made.log.batch, made.log.version) == (
        2,
        "v2" if "spark.sql.streaming.offsetLog.formatVersion" in settings else "v1",
    )
    assert savepoint.positions["words"].spark_offset == '{"logOffset":2}'
    assert set(savepoint.positions["words"].spark_log) == {"0", "1", "2"}
    assert {word: tuple(value) for word, value in entries(savepoint, "counts", "totals").items()} == {
        word: (len(ns), sum(ns), sum(ns) / len(ns)) for word, ns in by_word().items()
    }

    def add(event: Any, old: Totals | None) -> tuple[tuple[str, int, int], Totals]:
        old = old or Totals(0, 0, 0.0)
        new = Totals(old.n + 1, old.total + event[1], 0.0)
        return (event[0], new.n, new.total), new

    env = fp.StreamExecutionEnvironment()
    results = env.from_collection([("a", 100), ("z", 1)]).uid("more").key_by(lambda e: e[0], str)
    taken = results.map_with_state(add, Totals).uid("counts")
    assert described(savepoint, "counts", "totals") == (
        "value",
        Types.STRING(),
        type_of(Totals).describe()["fields"],
    )
    renamed = import_spark_checkpoint(
        checkpoint,
        tmp_path / "again",
        job="j",
        spark=session,
        operators={0: ImportedOperator("counts", {"state": ImportedState(value=shape.value, value_type=Totals)})},
    )
    env.launch = local(renamed)
    with taken.execute_and_collect() as found:
        assert sorted(found) == [("a", 7, sum(by_word()["a"]) + 100), ("z", 1, 1)]


def described(savepoint: SavepointReader, uid: str, name: str) -> tuple[Any, ...]:
    state = savepoint.state(uid, name)
    assert state.value_type is not None
    return state.kind, state.key_type, state.value_type.describe()["fields"]


def local(made: ImportedCheckpoint) -> Launch:
    restore = RestoreOptions(savepoint=made.savepoint.path, allow_non_restored=True)
    return Launch(options={"engine": "local"}, restore=restore)


class Total(NamedTuple):
    n: int
    last: str


class Two(NamedTuple):
    n: int
    m: int


class TakesOver(fp.KeyedProcessFunction):
    """Declares what `queries.Everything` has."""

    total = fp.ValueStateDescriptor("total", Total)
    seen = fp.ListStateDescriptor("seen", fp.Types.INSTANT())
    by = fp.MapStateDescriptor("by", bool, Two)

    def process_element(self, value: str, ctx: Any) -> Iterator[Any]:
        total = self.total.value()
        assert total is not None
        yield value, total.n, total.last, [each.minute for each in self.seen.get()], sorted(self.by.items())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp


def test_transform_with_state(session: SparkSession, events: Path, tmp_path: Path) -> None:
    def query() -> DataFrame:
        return (
            timed(session, events, files=1)
            .groupBy("word")
            .transformWithState(queries.Everything(), "word string, n long", "Update", "EventTime")
        )

    checkpoint = run(session, tmp_path / "checkpoint", query, settings=on_rocksdb())
    found = {state.name: (state.kind, state.rows) for state in inspect_spark_checkpoint(checkpoint, spark=session).states}
    made = import_spark_checkpoint(checkpoint, tmp_path / "savepoint", job="j", operators={0: "words"}, spark=session)
    savepoint = made.savepoint
    assert {state.name: (state.kind, state.count) for state in savepoint.states} == {
        name: ("timers" if kind == "timers-event" else kind, rows) for name, (kind, rows) in found.items()
    }

    def spark(**options: str) -> Counter[Any]:
        rows = session.read.format("statestore").options(**options).load(str(checkpoint)).drop("partition_id").collect()
        return Counter(str([tuple(each) if isinstance(each, tuple) else each for each in row]) for row in rows)

    timers = [[(e.key,), e.timestamp] for e in savepoint.timers("words").rows()]
    assert Counter(map(str, timers)) == spark(readRegisteredTimers="true")
    totals = [[(e.key,), tuple(e.value)] for e in savepoint.state("words", "total").rows()]
    assert Counter(map(str, totals)) == spark(stateVarName="total")
    pairs = [[(e.key,), (e.map_key,), tuple(e.value)] for e in savepoint.state("words", "by").rows()]
    assert Counter(map(str, pairs)) == spark(stateVarName="by")
    assert savepoint.state("words", "seen").get("a") == [moment(m) for w, _, m in EVENTS if w == "a"]

    # The watermark that Spark had reached: Flink's is a millisecond less.
    watermark_ms = START_MS + (max(m for *_, m in EVENTS) - 5) * MINUTE_MS - 1
    assert savepoint.watermarks == {"words": watermark_ms}
    assert {name: split.watermark_ms for name, split in savepoint.positions["source"].splits.items()} == {"0": watermark_ms}

    env = fp.StreamExecutionEnvironment()
    stream = env.from_collection(["a"]).uid("more").key_by(lambda word: word, str).process(TakesOver()).uid("words")
    env.launch = local(made)
    with stream.execute_and_collect() as results:
        out = list(results)
    numbers = by_word()["a"]
    minutes = [m for w, _, m in EVENTS if w == "a"]
    odd, even = ([n for n in numbers if n % 2 == rest][-1] for rest in (1, 0))
    assert ("a", sum(numbers), str(numbers[-1]), minutes, [(False, Two(even, -even)), (True, Two(odd, -odd))]) in out
    fired = sorted(row for row in out if len(row) == 2)
    assert fired == sorted((w, START_MS + m * MINUTE_MS + HOUR_MS) for w, _, m in EVENTS)


@pytest.mark.slow
def test_time_to_live_and_processing_time(session: SparkSession, events: Path, tmp_path: Path) -> None:
    def query() -> DataFrame:
        return (
            words(session, events)
            .groupBy("word", "n")
            .transformWithState(queries.Expiring(), "word string, n long", "Update", "ProcessingTime")
        )

    checkpoint = run(session, tmp_path / "checkpoint", query, once=True, settings=on_rocksdb())
    operator = ImportedOperator(
        "ttl",
        {"last": ImportedState(ttl=timedelta(hours=1000)), "by": ImportedState("map")},
        key="struct(word AS f0, n AS f1)",
    )
    made = import_spark_checkpoint(checkpoint, tmp_path / "savepoint", job="j", operators={0: operator}, spark=session)
    last, by = made.savepoint.state("ttl", "last"), made.savepoint.state("ttl", "map")
    assert last.key_type == type_of(tuple[str, int])
    assert [remark.partition(" expires")[0] for remark in made.remarks] == [
        "state 'by' of Spark's operator 0 (transformWithStateInPySparkExec)"
    ]
    assert {e.key: e.value for e in last.rows()} == {(w, n): n for w, n, _ in EVENTS}
    # Written when the batch ran: that long before it is due.
    assert {e.ttl_stamp for e in last.rows()} == {made.log.started_ms}
    assert {e.timestamp - 1000 * HOUR_MS for e in made.savepoint.timers("ttl", "processing").rows()} == {made.log.started_ms}
    assert sorted((*e.key, e.map_key, e.value) for e in by.rows()) == sorted({(w, n, w, n) for w, n, _ in EVENTS})


@pytest.mark.slow
def test_windows_and_deduplication(session: SparkSession, events: Path, tmp_path: Path) -> None:
    def query() -> DataFrame:
        unique = timed(session, events).dropDuplicates(["word", "n", "ts"])
        return unique.groupBy(f.window("ts", "20 minutes", "10 minutes"), "word").count()

    checkpoint = run(session, tmp_path / "checkpoint", query, settings=on_rocksdb())
    found = inspect_spark_checkpoint(checkpoint, spark=session)
    assert [(each.id, each.name) for each in found.operators] == [(0, "stateStoreSave"), (1, "dedupe")]
    windows = fp.SlidingEventTimeWindows.of(timedelta(minutes=20), timedelta(minutes=10))
    made = import_spark_checkpoint(
        checkpoint,
        tmp_path / "savepoint",
        job="j",
        operators={0: ImportedOperator("counts", window=windows), 1: "seen"},
        spark=session,
    )
    closed_ms = made.log.watermark_ms
    assert closed_ms > 0  # there was a batch without data, which dropped what was closed
    counted = Counter(
        (word, start * MINUTE_MS + START_MS)
        for word, _, minute in EVENTS
        for start in (minute // 10 * 10, minute // 10 * 10 - 10)
        if (start + 20) * MINUTE_MS + START_MS > closed_ms
    )
    state = made.savepoint.state("counts", "window-contents")
    assert {(e.key, e.namespace.start): e.value for e in state.rows()} == counted
    due = {(e.key, e.namespace.start, e.timestamp) for e in made.savepoint.timers("counts").rows()}
    assert due == {(key, start, start + 20 * MINUTE_MS - 1) for key, start in counted}
    kept = {(w, n, moment(m)) for w, n, m in EVENTS if m * MINUTE_MS + START_MS > closed_ms}
    assert {tuple(key) for key in entries(made.savepoint, "seen", "state")} == kept
    assert set(entries(made.savepoint, "seen", "state").values()) == {True}

    env = fp.StreamExecutionEnvironment()
    stream = env.from_collection([("a", START_MS + 24 * MINUTE_MS)], type_info=tuple[str, int]).uid("more")
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
    results = stream.assign_timestamps_and_watermarks(strategy).key_by(lambda e: e[0], str).window(windows).count()
    env.launch = local(made)
    with results.uid("counts").execute_and_collect() as rows:
        expected = [(w, n + (w == "a")) for (w, _), n in counted.items()]
        assert sorted(rows) == sorted(expected)

    as_records = import_spark_checkpoint(checkpoint, tmp_path / "records", job="j", skip=[1], spark=session)
    keys = [e.key for e in as_records.savepoint.state("stateStoreSave-0", "state").rows()]
    assert {(k.word, k.window.start) for k in keys} == {(w, datetime.fromtimestamp(start / 1000, UTC)) for w, start in counted}
    assert as_records.remarks == ["operator 1 (dedupe) is left out"]


@pytest.mark.slow
def test_session_windows(session: SparkSession, events: Path, tmp_path: Path) -> None:
    def query() -> DataFrame:
        sessions = timed(session, events).groupBy(f.session_window("ts", "4 minutes"), "word")
        return sessions.agg(f.count("*"), f.count("n"))

    checkpoint = run(session, tmp_path / "checkpoint", query, "append", settings=on_rocksdb())
    windows = fp.EventTimeSessionWindows.with_gap(timedelta(minutes=4))
    operator = ImportedOperator("counts", {"state": ImportedState(value="count + count_2 - count")}, window=windows)
    made = import_spark_checkpoint(checkpoint, tmp_path / "savepoint", job="j", operators={0: operator}, spark=session)
    found = {
        (e.key, e.namespace.start, e.namespace.end, e.value) for e in made.savepoint.state("counts", "window-contents").rows()
    }
    open_sessions = {
        (word, START_MS + first * MINUTE_MS, START_MS + (last + 4) * MINUTE_MS, n)
        for word, first, last, n in [("a", 20, 23, 2), ("b", 21, 24, 2), ("c", 22, 22, 1), ("2", 25, 25, 1)]
    }
    assert found == open_sessions

    env = fp.StreamExecutionEnvironment()
    more = [("a", START_MS + 26 * MINUTE_MS), ("c", START_MS + 29 * MINUTE_MS)]
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
    stream = env.from_collection(more, type_info=tuple[str, int]).uid("more").assign_timestamps_and_watermarks(strategy)
    results = stream.key_by(lambda e: e[0], str).window(windows).count().uid("counts")
    env.launch = local(made)
    with results.execute_and_collect() as rows:
        assert sorted(rows) == [("2", 1), ("a", 3), ("b", 2), ("c", 1), ("c", 1)]


@pytest.mark.slow
def test_state_of_groups_and_deduplication_within_the_watermark(session: SparkSession, events: Path, tmp_path: Path) -> None:
    import pandas as pd

    def sums(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        total = state.get[0] if state.exists else 0
        state.update((total + sum(int(frame.n.sum()) for frame in frames),))
        state.setTimeoutTimestamp(START_MS + HOUR_MS)
        yield pd.DataFrame({"word": [key[0]]})

    def groups() -> DataFrame:
        return (
            timed(session, events)
            .groupBy("word")
            .applyInPandasWithState(sums, "word string", "total long", "update", "EventTimeTimeout")
        )

    made = import_spark_checkpoint(
        run(session, tmp_path / "groups", groups), tmp_path / "savepoint", job="j", operators={0: "sums"}, spark=session
    )
    assert entries(made.savepoint, "sums", "state") == {word: sum(ns) for word, ns in by_word().items()}
    assert {(e.key, e.timestamp) for e in made.savepoint.timers("sums", "event").rows()} == {
        (word, START_MS + HOUR_MS) for word in by_word()
    }

    def first() -> DataFrame:
        return timed(session, events).dropDuplicatesWithinWatermark(["word"])

    checkpoint = run(session, tmp_path / "first", first, "append", settings=on_rocksdb())
    hook = ImportedState("first", rows=lambda frame: frame.selectExpr("upper(word) AS key", "length(word) AS value"))
    made = import_spark_checkpoint(
        checkpoint,
        tmp_path / "within",
        job="j",
        operators={0: ImportedOperator("seen", {"state": hook}, key="upper(word)")},
        spark=session,
    )
    alive = {e.key: e.timestamp for e in made.savepoint.timers("seen").rows()}
    assert alive
    assert all(timestamp > made.log.watermark_ms for timestamp in alive.values())
    assert entries(made.savepoint, "seen", "first") == dict.fromkeys(alive, 1)


@pytest.mark.slow
def test_several_sources_go_on_behind_the_last_batch(session: SparkSession, events: Path, tmp_path: Path) -> None:
    others = tmp_path / "others"
    for file in range(2):
        queries.write(others, file, [("x", file, file)])

    def numbers(name: str) -> DataFrame:
        reader = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).option("numPartitions", 1)
        frame = reader.option("startTimestamp", START_MS).name(name).load()
        return frame.selectExpr("'r' AS word", "value AS n", "timestamp AS ts")

    def query() -> DataFrame:
        named = [words(session, events, 1, "a"), numbers("r"), words(session, others, 1, "b")]
        return named[0].union(named[1]).union(named[2]).groupBy("word").count()

    evolution = {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "true"}
    checkpoint = run(session, tmp_path / "checkpoint", query, settings=evolution)
    made = import_spark_checkpoint(
        checkpoint, tmp_path / "savepoint", job="j", sources={"b": "others", "a": "words", "r": "rates"}, spark=session
    )
    counts = entries(made.savepoint, "stateStoreSave-0", "state")
    positions = made.savepoint.positions
    assert (counts["x"], counts["a"], set(positions)) == (2, 6, {"others", "words", "rates"})

    # Another order in another query: each source has its own position.
    craft(tmp_path / "next", [positions["others"], positions["words"]])
    queries.write(others, 2, [("y", 7, 7)])
    taken: list[Any] = []
    frame = words(session, others, 9).union(words(session, events, 9))
    query_ = frame.writeStream.foreachBatch(lambda batch, _: taken.extend(batch.collect())).trigger(availableNow=True)
    query_.option("checkpointLocation", str(tmp_path / "next")).start().awaitTermination()
    assert [(row.word, row.n) for row in taken] == [("y", 7)]
    assert counts["r"] % 5 == 0
    assert str(counts["r"] // 5 * 1000 + START_MS) in (positions["rates"].spark_offset or "")

    earlier = import_spark_checkpoint(checkpoint, tmp_path / "earlier", job="j", batch=0, spark=session)
    assert entries(earlier.savepoint, "stateStoreSave-0", "state")["a"] == 2
    assert earlier.savepoint.positions["source-b"].spark_offset == '{"logOffset":0}'
    assert set(earlier.savepoint.positions["source-b"].spark_log) == {"0"}


def test_what_cannot_be_imported_is_refused(session: SparkSession, events: Path, tmp_path: Path) -> None:
    def lists() -> DataFrame:
        return words(session, events, 3).groupBy("word").agg(f.collect_list("n"), f.count("*"))

    checkpoint = run(session, tmp_path / "lists", lists)

    def refused(match: str, path: Path = checkpoint, **options: Any) -> None:
        with pytest.raises(ConfigError, match=match):
            import_spark_checkpoint(path, tmp_path / "no", job="j", spark=session, **options)
        assert not (tmp_path / "no").exists()

    refused("buf is an internal buffer of Spark")
    refused("no stateful operator 3; it has 0 \\(stateStoreSave\\)", operators={3: "x"})
    refused("has no source 'b'; it has 0", sources={"b": "x"})
    refused("has the columns word, buf, count: .*total", operators={0: value("total")})
    refused("has no state 'totals'", operators={0: ImportedOperator("x", {"totals": ImportedState()})})
    refused("have no window", operators={0: ImportedOperator("x", window=fp.TumblingEventTimeWindows.of(1000))})
    refused("batch 7 has not been committed", batch=7)
    made = import_spark_checkpoint(checkpoint, tmp_path / "counts", job="j", operators={0: value("count")}, spark=session)
    assert entries(made.savepoint, "x", "state") == {word: len(ns) for word, ns in by_word().items()}

    checkpoint = run(session, tmp_path / "limit", lambda: words(session, events, 3).limit(4), "append")
    refused("state of globalLimit.*skip 0", checkpoint)
    live = words(session, events).groupBy("word").count().writeStream.outputMode("update").format("noop")
    query = live.option("checkpointLocation", str(tmp_path / "live")).start()
    query.processAllAvailable()
    try:
        refused("is running; stop it first", tmp_path / "live")
    finally:
        query.stop()


def value(sql: str) -> ImportedOperator:
    return ImportedOperator("x", {"state": ImportedState(value=sql)})


def test_the_command_line(session: SparkSession, events: Path, tmp_path: Path) -> None:
    def query() -> DataFrame:
        return timed(session, events).groupBy(f.window("ts", "10 minutes"), "word").agg(f.count("*"), f.max("n"))

    checkpoint = run(session, tmp_path / "checkpoint", query)

    def forkpoint(*arguments: str, exit_code: int = 0) -> Any:
        root = ["--state-root", str(tmp_path / "root"), "--output", "json"]
        done = CliRunner().invoke(main, [*root, "import-spark-checkpoint", str(checkpoint), *arguments])
        assert done.exit_code == exit_code, done.output
        return json.loads(done.stdout if exit_code == 0 else done.stderr.splitlines()[-1])

    found = forkpoint("--dry-run")
    assert found["batch"] > 0
    (operator,) = found["operators"]
    (state,) = operator.pop("states")
    assert operator == {"id": 0, "name": "stateStoreSave", "partitions": 3, "unreadable": None}
    assert state["key"] == {"window": "struct<start:timestamp,end:timestamp>", "word": "string"}
    assert state["columns"] == {"count": "bigint", "max": "bigint"}
    assert (found["provider"], found["sources"][0]["offset"]) == ("HDFSBackedStateStoreProvider", '{"logOffset":0}')
    assert not (tmp_path / "root").exists()

    options = ["--operator", "0=counts", "--window", "0=10 min", "--value", "0=struct(count AS n, max AS highest)"]
    made = forkpoint("--job", "words", "--source", "0=words", *options, "--max-parallelism", "32", "--label", "from-spark")
    savepoint = SavepointReader.find(tmp_path / "root", "words")
    assert (savepoint.path.endswith(made["id"]), savepoint.metadata.label) == (True, "from-spark")
    assert made["entries"] == 2 * state["rows"]
    kind, key_type, fields = described(savepoint, "counts", "window-contents")
    assert (kind, key_type, fields) == ("aggregating", Types.STRING(), type_of(Highest).describe()["fields"])
    renamed = forkpoint(
        "--job", "words", "--operator", "0=x:totals", "--key", "0=word || window.start", "--to", str(tmp_path / "to")
    )
    totals = SavepointReader.read(renamed["savepoint"]).state("x", "totals")
    assert (totals.key_type, totals.count) == (Types.STRING(), state["rows"])

    assert "name the savepoint's job" in forkpoint(exit_code=2)["error"]["message"]
    wrong = forkpoint("--job", "j", "--value", "0=count", exit_code=2)["error"]["message"]
    assert "--operator 0=UID" in wrong
    wrong = forkpoint("--job", "j", "--operator", "0=x", "--window", "0=ten", exit_code=1)["error"]["message"]
    assert "is not a duration" in wrong


class Highest(NamedTuple):
    n: int
    highest: int
