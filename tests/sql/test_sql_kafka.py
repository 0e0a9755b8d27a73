"""A query over a real Kafka, as users have it: a file of SQL, killed, restored, and changed with its counts kept."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sql_job import SqlJob, folded

import forkpoint as fp
from forkpoint import ProtobufMessage
from formats.protos import SHOP
from servers.kafka import Kafka, Message

DDL = """
SET 'execution.checkpointing.interval' = '50 ms';
CREATE TABLE orders (k STRING, v BIGINT)
WITH ('connector' = 'kafka', 'topic' = '{orders}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json');
CREATE TABLE totals (k STRING, {columns}, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = '{totals}', 'properties.bootstrap.servers' = '{servers}',
      'key.format' = 'json', 'value.format' = 'json');
"""
FIRST = ("n BIGINT, total BIGINT", "INSERT INTO totals SELECT k, COUNT(*), SUM(v) FROM orders GROUP BY k;")
WITH_AVERAGE = (
    "n BIGINT, total BIGINT, a BIGINT",
    "INSERT INTO totals SELECT k, COUNT(*), SUM(v), AVG(v) FROM orders GROUP BY k;",
)
FEWER = ("n BIGINT", "INSERT INTO totals SELECT k, COUNT(*) FROM orders GROUP BY k HAVING SUM(v) > 57000;")
WITH_MAXIMUM = ("n BIGINT, m BIGINT", "INSERT INTO totals SELECT k, COUNT(*), MAX(v) FROM orders GROUP BY k;")


class Query(SqlJob):
    """The job of a file of SQL, in a process of its own."""

    def __init__(self, kafka: Kafka, directory: Path) -> None:
        super().__init__(directory)
        self.kafka = kafka
        self.orders, self.totals = kafka.create_topic(partitions=2), kafka.create_topic(partitions=2)
        self.sent: dict[str, list[int | None]] = defaultdict(list)

    def write(self, version: tuple[str, str]) -> None:
        columns, insert = version
        names = {"orders": self.orders, "totals": self.totals, "servers": self.kafka.bootstrap_servers}
        self.write_file(DDL.format(columns=columns, **names) + insert)

    def send(self, start: int, stop: int) -> None:
        rows = [(f"key {n % 7}", None if n % 5 == 0 else n) for n in range(start, stop)]
        for k, v in rows:
            self.sent[k].append(v)
        self.kafka.produce(self.orders, [Message(json.dumps({"k": k, "v": v}).encode(), str(k).encode()) for k, v in rows])

    def expected(self, row: Callable[[list[int | None]], dict[str, Any] | None]) -> dict[str, Any]:
        found = {k: row(values) for k, values in self.sent.items()}
        return {k: {"k": k, **each} for k, each in found.items() if each is not None}

    def records(self) -> list[Message]:
        return self.kafka.read(self.totals)

    def folded(self) -> dict[str, Any]:
        return folded(self.records(), "k")

    def wait_for(self, wanted: dict[str, Any]) -> None:
        self.wait_until(self.folded, wanted)


@pytest.fixture
def query(kafka: Kafka, tmp_path: Path) -> Any:
    made = Query(kafka, tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


def counted(values: list[int | None]) -> dict[str, Any]:
    present = [value for value in values if value is not None]
    return {"n": len(values), "total": sum(present) if present else None}


def averaged(values: list[int | None]) -> dict[str, Any]:
    found = counted(values)
    present = sum(value is not None for value in values)
    return {**found, "a": found["total"] // present if present else None}


def only_large(values: list[int | None]) -> dict[str, Any] | None:
    found = counted(values)
    return {"n": found["n"]} if (found["total"] or 0) > 57000 else None


def with_maximum(values: list[int | None]) -> dict[str, Any]:
    return {"n": len(values), "m": max((value for value in values if value is not None), default=None)}


def test_a_query_is_killed_restored_and_changed_with_its_counts_kept(query: Query) -> None:
    query.write(FIRST)
    query.start()
    query.send(0, 500)
    query.wait_for(query.expected(counted))
    query.send(500, 800)  # while it works on these
    query.kill()
    query.send(800, 1000)
    query.start()
    query.wait_for(query.expected(counted))

    query.stop()
    before = len(query.records())
    query.write(WITH_AVERAGE)
    query.start()  # no new orders: only the difference of the results comes
    query.wait_for(query.expected(averaged))
    assert len(query.records()) == before + len(query.sent)

    query.kill()  # the difference has been committed, and does not come again
    query.start()
    query.send(1000, 1001)
    query.wait_for(query.expected(averaged))
    assert len(query.records()) == before + len(query.sent) + 1
    query.stop()

    query.write(FEWER)  # SUM(v) is no longer a column, but decides which rows there are
    query.start()
    query.wait_for(query.expected(only_large))
    assert 0 < len(query.folded()) < len(query.sent)
    query.stop()

    query.write(WITH_MAXIMUM)
    refused = query.command("sql", "-f", "app.sql")
    assert refused.returncode != 0
    assert "MAX(v) cannot be computed from the saved COUNT(*), SUM(v)" in refused.stderr

    # The topic still has all orders, so that the state can be computed from them again.
    done = query.command("--output", "json", "recompute", "app.sql", "--label", "maximum")
    assert done.returncode == 0, done.stderr
    assert {name: json.loads(done.stdout)[name] for name in ("tables", "rows")} == {"tables": ["totals"], "rows": 1001}
    before = len(query.records())
    query.start("-s", "maximum")
    query.wait_for(query.expected(with_maximum))
    assert len(query.records()) == before + len(query.sent)
    query.kill()
    query.start()
    query.send(1001, 1002)
    query.wait_for(query.expected(with_maximum))
    assert len(query.records()) == before + len(query.sent) + 1
    query.stop()

    query.write(FIRST)
    query.kafka.delete_records(query.orders, 3)
    done = query.command("recompute", "app.sql")
    assert done.returncode == 4
    assert re.search("source 'orders' has given [0-9]+ rows up to the savepoint's position, but 1,002 to the", done.stderr), (
        done.stderr
    )
    assert [path.name for path in (query.directory / ".forkpoint").glob("recomputed-*")] == []


def test_columns_about_messages(kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=2)
    for partition in (0, 1):
        values = [b"{}", b'{"v": 1}', None] if partition else [b'{"v": 2}']
        kafka.produce(
            topic,
            [
                Message(value, b"k", partition=partition, timestamp_ms=1_700_000_000_000, headers=(("h", b"x"),))
                for value in values
            ],
        )
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    t_env = fp.StreamTableEnvironment.create(env)
    t_env.execute_sql(
        f"""CREATE TABLE t (
            place STRING METADATA FROM 'topic' VIRTUAL, v BIGINT, `partition` INT METADATA VIRTUAL, n AS `offset` * 10,
            `offset` BIGINT NOT NULL METADATA VIRTUAL, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
            headers MAP<STRING, BYTES> METADATA, k STRING,
            WATERMARK FOR at AS at
        ) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{kafka.bootstrap_servers}',
                'value.format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601', 'scan.bounded.mode' = 'latest-offset',
                'key.format' = 'raw', 'key.fields' = 'k', 'value.fields-include' = 'EXCEPT_KEY')"""
    )
    time = datetime.fromtimestamp(1_700_000_000, UTC)
    found = [
        tuple(row) for row in t_env.execute_sql("SELECT place, v, `partition`, n, `offset`, at, headers['h'], k FROM t").collect()
    ]
    assert sorted(found, key=lambda row: (row[2], row[4])) == [
        (topic, 2, 0, 0, 0, time, b"x", "k"),
        (topic, None, 1, 0, 0, time, b"x", "k"),
        (topic, 1, 1, 10, 1, time, b"x", "k"),
    ]
    described = {row[0]: row[4] for row in t_env.execute_sql("DESCRIBE t").collect()}
    assert described["place"] == "METADATA FROM 'topic' VIRTUAL"
    with pytest.raises(fp.SqlError, match="metadata column 'at' cannot be written; declare it VIRTUAL"):
        t_env.execute_sql("INSERT INTO t SELECT v, k FROM t")


def test_messages_in_protobuf_of_a_job_that_goes_on(kafka: Kafka, tmp_path: Path) -> None:
    """Rows of a catalogue's tables are counted before and after a savepoint."""
    orders, totals = kafka.create_topic(), kafka.create_topic()
    order, line = (ProtobufMessage(SHOP, f"shop.{name}").message_class for name in ("Order", "Line"))
    (tmp_path / "shop_pb2.py").write_text(
        "from forkpoint import ProtobufMessage\n"
        f"Order, Line = (ProtobufMessage({SHOP!r}, name).message_class for name in ('shop.Order', 'shop.Line'))\n"
    )
    shared = f"'properties.bootstrap.servers' = '{kafka.bootstrap_servers}'"
    created = f"""CREATE CATALOG prod WITH ('type' = 'state-root');
        CREATE TABLE prod.`default`.orders (id BIGINT, item STRING) WITH ('connector' = 'kafka', 'topic' = '{orders}', {shared},
            'format' = 'protobuf', 'protobuf.message-class-name' = 'shop_pb2.Order');
        CREATE TABLE prod.`default`.totals (item STRING, `count` INT, PRIMARY KEY (item) NOT ENFORCED)
        WITH ('connector' = 'upsert-kafka', 'topic' = '{totals}', {shared},
            'key.format' = 'protobuf', 'key.protobuf.message-class-name' = 'shop_pb2.Line',
            'value.format' = 'protobuf', 'value.protobuf.message-class-name' = 'shop_pb2.Line');"""
    count = """SET 'execution.checkpointing.interval' = '50 ms'; USE CATALOG prod;
        INSERT INTO totals SELECT item, CAST(COUNT(*) AS INT) FROM orders GROUP BY item"""

    def send(items: str) -> None:
        kafka.produce(orders, [Message(order(item=item.strip()).SerializeToString()) for item in items])

    def found() -> dict[str, int]:
        rows = [(line.FromString(each.key), line.FromString(each.value)) for each in kafka.read(totals)]
        assert all(key.item == row.item for key, row in rows)
        return {row.item: row.count for _, row in rows}

    with SqlJob(tmp_path) as job:
        job.write_file(created + count)
        send("aab ")  # a message of defaults only has no bytes, as an order and as a key
        job.start()
        job.wait_until(found, {"a": 2, "b": 1, "": 1})
        job.stop()
        job.write_file(count)
        send("ab ")
        job.start()
        job.wait_until(found, {"a": 3, "b": 2, "": 2})


def test_versions_of_rows_in_a_topic_of_upserts(kafka: Kafka) -> None:
    """Each order has the rate of its time, none after its removal, also if many versions are read in one epoch."""
    orders, rates = kafka.create_topic(), kafka.create_topic()
    at = 1_700_000_000_000
    for ms, rate in ((0, 3), (1000, 4), (5000, None), (9000, 5)):
        value = None if rate is None else json.dumps({"c": "EUR", "rate": rate}).encode()
        kafka.produce(rates, [Message(value, b'{"c": "EUR"}', timestamp_ms=at + ms)])
    kafka.produce(orders, [Message(json.dumps({"n": n}).encode(), timestamp_ms=at + n * 1000) for n in range(-1, 11)])
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    t_env = fp.StreamTableEnvironment.create(env)
    ends = f"'properties.bootstrap.servers' = '{kafka.bootstrap_servers}', 'scan.bounded.mode' = 'latest-offset'"
    event_time = "ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
    t_env.execute_sql(
        f"CREATE TABLE orders (n INT, {event_time}) WITH ('connector' = 'kafka', 'topic' = '{orders}', 'format' = 'json', {ends})"
    )
    t_env.execute_sql(
        f"CREATE TABLE rates (c STRING, rate INT, {event_time}, PRIMARY KEY (c) NOT ENFORCED) WITH ("
        f"'connector' = 'upsert-kafka', 'topic' = '{rates}', 'key.format' = 'json', 'value.format' = 'json', {ends})"
    )
    query = "SELECT n, rate FROM orders AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON r.c = 'EUR'"
    with pytest.raises(fp.SqlError, match="ON must compare the primary key of the table by =; it lacks c"):
        t_env.execute_sql(query)
    query = query.replace("'EUR'", "o.c").replace("FROM orders", "FROM (SELECT *, 'EUR' AS c FROM orders)")
    wanted = [(-1, None), (0, 3), *((n, 4) for n in range(1, 5)), *((n, None) for n in range(5, 9)), (9, 5), (10, 5)]
    assert sorted(map(tuple, t_env.execute_sql(query).collect())) == wanted
