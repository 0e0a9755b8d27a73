"""Streams of Kinesis as tables of SQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import forkpoint as fp
from forkpoint.table.connectors.batches import Columns
from forkpoint_kinesis.tables import KeysOfColumns
from servers.kinesis_server import Kinesis
from sql.sql_job import SqlJob

SHARDS = ("shardId-000000000000", "shardId-000000000001")
PROGRAM = """
SET 'execution.checkpointing.interval' = '50 ms';
CREATE TABLE orders (
    k BIGINT, v BIGINT, shard STRING METADATA FROM 'shard-id' VIRTUAL, place STRING METADATA FROM 'sequence-number' VIRTUAL,
    at TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL
) WITH ({options}, 'stream' = '{orders}', 'source.init.position' = 'AT_TIMESTAMP', 'source.init.timestamp' = '1000000000.5',
        'source.reader.empty-records-fetch-interval' = '10 ms', 'format' = 'json');
CREATE TABLE totals (shard STRING, k BIGINT, total BIGINT, places BIGINT, recent BOOLEAN) PARTITIONED BY (shard, k)
WITH ({options}, 'stream.arn' = 'arn:aws:kinesis:eu-west-1:123456789012:stream/{totals}', 'format' = 'debezium-json');
INSERT INTO totals SELECT shard, k, SUM(v), COUNT(DISTINCT place), MIN(at) > TIMESTAMP '2020-01-01 00:00:00'
FROM orders GROUP BY k, shard;
"""


def options_of(kinesis: Kinesis) -> str:
    given = {name.replace("provider.basic", "basic"): value for name, value in kinesis.properties.items()}
    return ", ".join(f"'{name}' = '{value}'" for name, value in ({"connector": "kinesis"} | given).items())


def totals(kinesis: Kinesis, stream: str) -> dict[str, Any]:
    """The last row of each partition key: an epoch that is put again has its changes in order, and the same."""
    return {key: json.loads(data)["after"] for key, data in kinesis.read(stream)}


def test_a_file_of_sql_goes_from_stream_to_stream_though_it_is_killed(kinesis: Kinesis, tmp_path: Path) -> None:
    orders, to = kinesis.create_stream(shards=2), kinesis.create_stream(shards=2)

    def put(start: int, stop: int) -> None:
        for shard in (0, 1):
            rows = [{"k": n % 4, "v": n} for n in range(start, stop) if n % 2 == shard]
            kinesis.put_to(orders, SHARDS[shard], map(json.dumps, rows))

    def wanted(stop: int) -> dict[str, Any]:
        found = {}
        for k in range(4):
            shard, values = SHARDS[k % 2], range(k, stop, 4)
            row = {"shard": shard, "k": k, "total": sum(values), "places": len(values), "recent": True}
            found[f"{shard}|{k}"] = row
        return found

    with SqlJob(tmp_path) as job:
        job.write_file(PROGRAM.format(options=options_of(kinesis), orders=orders, totals=to))
        job.start()
        put(0, 100)
        job.wait_until(lambda: totals(kinesis, to), wanted(100))
        put(100, 160)  # while it works on these
        job.kill()
        put(160, 200)
        job.start()
        job.wait_until(lambda: totals(kinesis, to), wanted(200))


def test_options_are_checked() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    tables.execute_sql("CREATE TABLE given (k STRING, x DOUBLE) WITH ('connector' = 'datagen')")
    read, written = "SELECT * FROM t", "INSERT INTO t SELECT * FROM given"
    whole = "'stream' = 's', 'format' = 'json'"
    for sql, options, message in [
        (read, "'format' = 'json'", "needs the option 'stream.arn'"),
        (written, "'stream' = 's'", "needs the option 'format'"),
        (read, f"{whole}, 'aws.regoin' = 'x'", "has no option 'aws.regoin'; did you mean 'aws.region'?"),
        (read, f"{whole}, 'source.init.position' = 'FIRST'", "use 'TRIM_HORIZON' or 'LATEST' or 'AT_TIMESTAMP'"),
        (
            read,
            f"{whole}, 'source.init.position' = 'AT_TIMESTAMP'",
            "'AT_TIMESTAMP' needs 'source.init.timestamp': seconds since",
        ),
        (
            written,
            "'stream' = 's', 'format' = 'avro-confluent', 'avro-confluent.url' = 'u'",
            "the option 'avro-confluent.subject'",
        ),
        ("INSERT INTO t SELECT k, SUM(x) FROM given GROUP BY k", whole, "table 't' (kinesis) takes added rows only"),
        (written, f"{whole}, 'sink.partitioner' = 'fixed'", "PARTITIONED BY are the partition key"),
        (written, "'stream' = 's', 'format' = 'canal-json'", "add PARTITIONED BY (…) with columns such as its key"),
        (written, whole, "column 'x' is DOUBLE; partition keys are of STRING, BOOLEAN and integers"),
    ]:
        partitioned = "PARTITIONED BY (x)" if "partition key" in message else ""
        tables.execute_sql(f"CREATE TABLE t (k STRING, x DOUBLE) {partitioned} WITH ('connector' = 'kinesis', {options})")
        with pytest.raises(fp.SqlError) as raised:
            tables.execute_sql(sql)
        assert message in str(raised.value)
        tables.execute_sql("DROP TABLE t")


def test_partition_keys_are_columns_as_text() -> None:
    columns = pa.record_batch({"n": pa.array([1, None, 3]), "k": ["", None, "x" * 300], "v": ["", "", ""]})
    batch = Columns(columns, fp.Types.ROW_NAMED(["n", "k", "v"], [fp.Types.LONG(), fp.Types.STRING(), fp.Types.STRING()]))
    assert KeysOfColumns("columns", ("n", "k"), "/").keys(batch, 0).to_pylist() == ["1/", "null/null", "3/" + "x" * 254]
    assert KeysOfColumns("columns", ("v",), "").keys(batch, 0).to_pylist() == ["|"] * 3
