"""Topics of changes as tables over a real Kafka: upserts, and Debezium's messages, read and written; killed in between."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sql_job import SqlJob, folded

import forkpoint as fp
from forkpoint.relational.changes import row_type
from forkpoint.relational.types import Field, SqlType
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.table.catalog import StreamTable
from forkpoint.table.session import Session
from forkpoint.table.statements import execute
from forkpoint.testing import PAUSE, Eof, TestSource, run_local
from servers.kafka import Kafka, Message

DDL = """
SET 'execution.checkpointing.interval' = '50 ms';
CREATE TABLE users (id BIGINT, city STRING, age BIGINT, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = '{users}', 'properties.bootstrap.servers' = '{servers}',
      'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE guests (city STRING, id BIGINT, age BIGINT)
WITH ('connector' = 'kafka', 'topic' = '{guests}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'debezium-json');
CREATE TABLE cities (city STRING, n BIGINT, oldest BIGINT, PRIMARY KEY (city) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = '{cities}', 'properties.bootstrap.servers' = '{servers}',
      'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE adults (id BIGINT, city STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'kafka', 'topic' = '{adults}', 'properties.bootstrap.servers' = '{servers}', 'value.format' = 'debezium-json',
      'key.format' = 'json', 'key.fields' = 'id', 'scan.bounded.mode' = 'latest-offset');
"""
INSERTS = """
INSERT INTO cities SELECT city, COUNT(*), MAX(age)
FROM (SELECT city, age FROM users UNION ALL SELECT city, age FROM guests) GROUP BY city;
INSERT INTO adults SELECT id, city FROM users WHERE age > 17;
"""


class People:
    """Rows by key, and their changes in the two topics."""

    def __init__(self, kafka: Kafka, names: dict[str, str]) -> None:
        self.kafka, self.names, self.rng = kafka, names, random.Random(1)
        self.users: dict[int, Any] = {}
        self.guests: dict[int, Any] = {}

    def send(self, count: int) -> None:
        users, guests = [], []
        for _ in range(count):
            id, row = self._next(self.users)
            value = None if row is None else json.dumps(row).encode()
            users.append(Message(value, json.dumps({"id": id}).encode()))
            old = self.guests.get(-id)
            _, row = self._next(self.guests, -id)
            if old or row:
                op = {"before": old, "after": row, "op": "d" if row is None else "u" if old else "c"}
                guests.append(Message(json.dumps(op).encode(), str(id).encode()))
        self.kafka.produce(self.names["users"], users)
        self.kafka.produce(self.names["guests"], guests)

    def _next(self, rows: dict[int, Any], id: int | None = None) -> tuple[int, Any]:
        id = self.rng.randrange(20) if id is None else id
        rows.pop(id, None)
        if self.rng.random() < 0.6:
            rows[id] = {"id": id, "city": self.rng.choice("abc"), "age": self.rng.randrange(40)}
        return id, rows.get(id)

    def cities(self) -> dict[str, Any]:
        found: dict[str, list[int]] = {}
        for row in (*self.users.values(), *self.guests.values()):
            found.setdefault(row["city"], []).append(row["age"])
        return {city: {"city": city, "n": len(ages), "oldest": max(ages)} for city, ages in found.items()}


@pytest.fixture
def job(tmp_path: Path) -> Any:
    made = SqlJob(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


def test_changes_of_topics_are_retracted_across_kills(kafka: Kafka, job: SqlJob) -> None:
    names = {name: kafka.create_topic(partitions=2) for name in ("users", "guests", "cities")}
    names |= {"adults": kafka.create_topic(partitions=2), "servers": kafka.bootstrap_servers}
    people = People(kafka, names)
    job.write_file(DDL.format(**names) + INSERTS)
    job.start()
    people.send(200)
    job.wait_until(lambda: folded(kafka.read(names["cities"]), "city"), people.cities())
    people.send(400)  # while it works on these
    job.kill()
    people.send(200)
    job.start()
    job.wait_until(lambda: folded(kafka.read(names["cities"]), "city"), people.cities())
    job.stop()
    kept = json.loads(job.command("--output", "json", "state", "get", "app", "users-rows", "rows").stdout)
    assert {entry["key"]: entry["value"] for entry in kept["rows"]} == people.users, kept

    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    for statement in DDL.format(**names).split(";")[1:-1]:
        tables.execute_sql(statement)
    found: Counter[Any] = Counter()
    for row in tables.execute_sql("SELECT city, COUNT(*) FROM adults GROUP BY city").collect():
        found[tuple(row)] += 1 if row.get_row_kind() is fp.RowKind.INSERT else -1
    keys = {json.loads(record.key or b"")["id"] for record in kafka.read(names["adults"])}
    assert keys >= {id for id, row in people.users.items() if row["age"] > 17}
    assert +found == Counter(Counter(row["city"] for row in people.users.values() if row["age"] > 17).items())


SCHEMA = (Field("id", SqlType("BIGINT", nullable=False)), Field("v", SqlType("BIGINT")))
JOINED = "SELECT a.id, a.v, b.v AS w FROM t AS a JOIN t AS b ON a.v = b.id"


def test_the_newest_record_of_a_key_is_its_row_whichever_subtasks_change_it(kafka: Kafka, tmp_path: Path) -> None:
    """A row's removal and the row in its place, which are of two subtasks of a join, are in order by the records' key."""
    topic = kafka.create_topic(partitions=3)
    options = f"'properties.bootstrap.servers' = '{kafka.bootstrap_servers}', 'format' = 'debezium-json', 'key.format' = 'json'"
    sink = f"CREATE TABLE s (id BIGINT, v BIGINT, w BIGINT) WITH ('connector' = 'kafka', 'topic' = '{topic}', {options}, "

    def job(env: fp.StreamExecutionEnvironment, source: TestSource) -> None:
        session = Session(env)
        rows = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "t", row_type(SCHEMA, updating=True)).uid("t")
        session.catalog.streams["t"] = StreamTable(SCHEMA, rows.edges, None, "all", ("id",))
        text = Text(f"{sink} 'key.fields' = 'id'); INSERT INTO s {JOINED}")
        for statement in parse(text):
            execute(session, statement, text)

    rng, rows, script, restore = random.Random(1), dict[int, int](), list[Any](), None
    for change in range(300):
        id = rng.randrange(8)
        old = rows.pop(id, None)
        script += [] if old is None else [fp.Row(id, old, -1)]
        if rng.random() < 0.8:
            rows[id] = rng.randrange(8)
            script.append(fp.Row(id, rows[id], 1))
        script += [Eof(savepoint=True)] if change % 100 == 99 else [PAUSE] * (rng.random() < 0.1)
    for parallelism in (1, 4, 2):
        options: dict[str, Any] = {"state_root": str(tmp_path), "options": {"max_parallelism": 8}}
        restore = run_local(job, script, parallelism=parallelism, restore=restore, **options).savepoint
    newest: dict[int, Any] = {}
    for record in kafka.read(topic):
        change = json.loads(record.value or b"")
        old, new = change["before"], change["after"]
        assert newest.pop(json.loads(record.key or b"")["id"], None) == old
        if new is not None:
            newest[new["id"]] = new
    assert newest == {id: {"id": id, "v": v, "w": rows[v]} for id, v in rows.items() if v in rows}


def test_versions_of_a_topic_of_upserts_by_the_time_of_its_records(kafka: Kafka) -> None:
    rates, orders = kafka.create_topic(), kafka.create_topic()
    hour = 1_700_000_000_000
    versions = [
        (b"EUR", b"1.1", 0),
        (b"USD", b"1", 0),
        (b"EUR", b"1.2", 9),
        (b"USD", None, 9),
        (b"GBP", b"0.9", 9),
        (b"YEN", b"?", 9),
    ]
    values = [None if rate is None else b'{"rate": %s}' % rate for _, rate, _ in versions]
    records = zip(versions, values, strict=True)
    kafka.produce(rates, [Message(value, b'{"c": "%s"}' % c, timestamp_ms=hour + at) for (c, _, at), value in records])
    placed = [("EUR", 5), ("USD", 5), ("EUR", 15), ("USD", 15)]
    kafka.produce(orders, [Message(json.dumps({"c": c, "n": at}).encode(), timestamp_ms=hour + at) for c, at in placed])
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    times = "ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, WATERMARK FOR ts AS ts"
    options = f"'properties.bootstrap.servers' = '{kafka.bootstrap_servers}', 'scan.bounded.mode' = 'latest-offset'"
    of_orders = f"'connector' = 'kafka', 'topic' = '{orders}', 'format' = 'json', {options}"
    tables.execute_sql(f"CREATE TABLE orders (c STRING, n INT, {times}) WITH ({of_orders})")
    tables.execute_sql(
        f"""CREATE TABLE rates (c STRING, rate DOUBLE, {times}, PRIMARY KEY (c) NOT ENFORCED) WITH (
            'connector' = 'upsert-kafka', 'topic' = '{rates}', 'key.format' = 'json', 'value.format' = 'json',
            'value.fields-include' = 'EXCEPT_KEY', 'json.ignore-parse-errors' = 'true', {options})"""
    )
    query = "SELECT o.c, o.n, r.rate FROM orders AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.c = r.c"
    found = sorted(map(tuple, tables.execute_sql(query).collect()))
    assert found == [("EUR", 5, 1.1), ("EUR", 15, 1.2), ("USD", 5, 1.0), ("USD", 15, None)]
    assert sorted(map(tuple, tables.execute_sql("SELECT c, rate FROM rates").collect())) == [("EUR", 1.2), ("GBP", 0.9)]
