"""Queues of RabbitMQ as tables of SQL."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from programs import ENVIRONMENT
from servers.rabbitmq_server import RabbitMQ
from sql.sql_job import SqlJob

PROGRAM = """
SET 'execution.checkpointing.interval' = '50 ms';
CREATE TABLE orders (k BIGINT, v BIGINT)
WITH ('connector' = 'rabbitmq', 'uri' = 'amqp://guest:wrong@127.0.0.1:{port}', 'password' = '${{env:RABBITMQ_PASSWORD}}',
      'queue-name' = '{orders}', 'id-property' = 'correlation_id', 'prefetch-count' = '40', 'format' = 'json');
CREATE TABLE totals (k BIGINT, n BIGINT, total BIGINT)
WITH ('connector' = 'rabbitmq', 'host' = '127.0.0.1', 'port' = '{port}', 'exchange' = 'amq.direct', 'routing-key' = '{totals}',
      'content-type' = 'application/json', 'format' = 'debezium-json');
INSERT INTO totals SELECT k, COUNT(*), SUM(v) FROM orders GROUP BY k;
"""


def rows(rabbitmq: RabbitMQ, queue: str) -> dict[Any, int]:
    """The rows that the changes leave, and how many of each. Repetitions are left out by message id."""
    found: Counter[Any] = Counter()
    for body, properties in {properties.message_id: (body, properties) for body, properties in rabbitmq.read(queue)}.values():
        assert properties.content_type == "application/json"
        change = json.loads(body)
        assert (change["before"] is None) == (change["op"] == "c")
        found[tuple((change["before"] or change["after"]).values())] += 1 if change["op"] == "c" else -1
    return {row: count for row, count in found.items() if count}


def test_a_file_of_sql_goes_from_queue_to_exchange_though_it_is_killed(
    rabbitmq: RabbitMQ, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, to = rabbitmq.create_queue(), rabbitmq.create_queue()
    rabbitmq.on_channel(lambda channel: channel.queue_bind(to, "amq.direct", to))
    monkeypatch.setitem(ENVIRONMENT, "RABBITMQ_PASSWORD", "guest")

    def publish(start: int, stop: int) -> None:
        rabbitmq.publish(orders, [json.dumps({"k": n % 4, "v": n}) for n in range(start, stop)])

    def wanted(stop: int) -> dict[Any, int]:
        return {(k, len(range(k, stop, 4)), sum(range(k, stop, 4))): 1 for k in range(4)}

    with SqlJob(tmp_path) as job:
        job.write_file(PROGRAM.format(port=rabbitmq.port, orders=orders, totals=to))
        job.start()
        publish(0, 100)
        job.wait_until(lambda: rows(rabbitmq, to), wanted(100))
        publish(100, 400)  # while it works on these
        job.kill()
        publish(400, 500)
        job.start()
        job.wait_until(lambda: rows(rabbitmq, to), wanted(500))


def test_options_are_checked() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    tables.execute_sql("CREATE TABLE given (k STRING, x BIGINT) WITH ('connector' = 'datagen')")
    read, written = "SELECT * FROM t", "INSERT INTO t SELECT * FROM given"
    whole = "'host' = 'h', 'queue-name' = 'q', 'format' = 'json'"
    for sql, options, message in [
        (read, "'queue-name' = 'q', 'format' = 'json'", "needs the option 'uri'"),
        (read, "'host' = 'h', 'exchange' = 'e', 'format' = 'json'", "needs the option 'queue-name'"),
        (written, "'host' = 'h', 'format' = 'json'", "needs the option 'queue-name'"),
        (written, "'host' = 'h', 'queue-name' = 'q'", "needs the option 'format'"),
        (read, f"{whole}, 'queue' = 'q'", "has no option 'queue'; did you mean 'queue-name'?"),
        (read, f"{whole}, 'id-property' = 'id'", "use 'correlation_id' or 'message_id'"),
        (written, f"{whole}, 'routing-key' = 'r'", "add the option 'exchange'"),
        ("INSERT INTO t SELECT k, SUM(x) FROM given GROUP BY k", whole, "table 't' (rabbitmq) takes added rows only"),
    ]:
        tables.execute_sql(f"CREATE TABLE t (k STRING, x BIGINT) WITH ('connector' = 'rabbitmq', {options})")
        with pytest.raises(fp.SqlError) as raised:
            tables.execute_sql(sql)
        assert message in str(raised.value)
        tables.execute_sql("DROP TABLE t")
