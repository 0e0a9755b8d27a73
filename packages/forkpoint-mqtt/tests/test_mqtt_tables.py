"""Topics of MQTT as tables of SQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from servers.mqtt_server import Mosquitto
from sql.sql_job import SqlJob

PROGRAM = """
SET 'execution.checkpointing.interval' = '50 ms';
CREATE TABLE readings (celsius BIGINT, topic STRING METADATA VIRTUAL)
WITH ('connector' = 'mqtt', 'host' = '127.0.0.1', 'port' = '{port}', 'topic' = '{topic}/+/celsius; {topic}/none',
      'client-id' = '{session}', 'id-property' = 'id', 'receive-maximum' = '40', 'format' = 'json');
CREATE TABLE warm (room STRING, fahrenheit BIGINT) WITH ('connector' = 'filesystem', 'path' = 'warm', 'format' = 'json');
INSERT INTO warm SELECT SPLIT_INDEX(topic, '/', 2), celsius * 9 / 5 + 32 FROM readings WHERE celsius >= 20;
"""


def rows(directory: Path) -> list[Any]:
    files = [path for path in (directory / "warm").rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    found = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return sorted((row["room"], row["fahrenheit"]) for row in found)


def test_a_file_of_sql_reads_topics_though_it_is_killed(mosquitto: Mosquitto, tmp_path: Path) -> None:
    topic = mosquitto.topic()
    session = topic.replace("/", "-")
    mosquitto.begin_session(session, f"{topic}/+/celsius")

    def publish(start: int, stop: int) -> None:
        for room in "ab":
            mosquitto.publish(
                f"{topic}/{room}/celsius", [json.dumps({"celsius": n, "of": room}) for n in range(start, stop)], ids=True
            )

    def wanted(stop: int) -> list[Any]:
        return [(room, n * 9 // 5 + 32) for room in "ab" for n in range(20, stop)]

    with SqlJob(tmp_path) as job:
        job.write_file(PROGRAM.format(port=mosquitto.port, topic=topic, session=session))
        job.start()
        publish(0, 100)
        job.wait_until(lambda: rows(tmp_path), wanted(100))
        publish(100, 400)  # while it works on these
        job.kill()
        publish(400, 450)
        job.start()
        job.wait_until(lambda: rows(tmp_path), wanted(450))


def test_options_are_checked() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    read, whole = "SELECT * FROM t", "'host' = 'h', 'topic' = 't', 'format' = 'json'"
    for sql, options, message in [
        (read, "'topic' = 't', 'format' = 'json'", "needs the option 'host'"),
        (read, "'host' = 'h', 'format' = 'json'", "needs the option 'topic'"),
        (read, "'host' = 'h', 'topic' = 't'", "needs the option 'format'"),
        (read, f"{whole}, 'user' = 'u'", "has no option 'user'; did you mean 'username'?"),
        (read, f"{whole}, 'version' = '4'", "use '5' or '3.1.1'"),
        ("INSERT INTO t VALUES ('a')", whole, "connector 'mqtt' reads tables; it cannot write table 't'"),
        (read.replace("*", "qos"), whole, "there is no column 'qos'"),
    ]:
        tables.execute_sql(f"CREATE TABLE t (k STRING) WITH ('connector' = 'mqtt', {options})")
        with pytest.raises(fp.SqlError) as raised:
            tables.execute_sql(sql)
        assert message in str(raised.value)
        tables.execute_sql("DROP TABLE t")
