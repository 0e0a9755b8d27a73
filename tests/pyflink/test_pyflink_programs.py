"""Programs written for PyFlink run as they are, by ``python -m forkpoint.pyflink`` and ``forkpoint run --pyflink``."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from programs import run_python

PROGRAMS = Path(__file__).parent / "programs"
TOTALS = [{"room": "a", "total": 1}, {"room": "a", "total": 3}, {"room": "b", "total": 10}, {"room": "b", "total": 30}]


def run(program: str, *arguments: object, engine: str = "local") -> subprocess.CompletedProcess[str]:
    command = ["-W", "ignore", "-m", "forkpoint.pyflink", PROGRAMS / program, *arguments]
    environment = {**os.environ, "FORKPOINT_ENGINE": engine}
    return run_python(command, capture_output=True, text=True, env=environment)


def printed(program: str, *arguments: object, engine: str = "local") -> list[str]:
    done = run(program, *arguments, engine=engine)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_windows_between_files(tmp_path):
    (tmp_path / "in.txt").write_text("kitchen 1\nhall 2\nkitchen 5\nkitchen 12\n")
    assert printed("room_counts.py", "--input", tmp_path / "in.txt", "--output", tmp_path / "out") == []
    files = list((tmp_path / "out").iterdir())
    assert all(file.name.startswith("rooms-") and file.suffix == ".out" for file in files)
    lines = sorted(line for file in files for line in file.read_text().splitlines())
    assert lines == ["('hall', 0, 1)", "('kitchen', 0, 2)", "('kitchen', 10, 1)"]


def test_functions_of_a_module_beside_the_program():
    assert printed("totals.py") == list(map(str, TOTALS))


@pytest.mark.slow
@pytest.mark.spark
def test_functions_of_a_module_beside_the_program_on_spark():
    assert printed("totals.py", engine="spark") == list(map(str, TOTALS))


def test_retries_and_the_plan():
    assert printed("lookups.py") == ["['Data Source', 'Operator', 'Data Sink']", "'<1>'", "'<2>'", "'<3>'"]


def test_names_that_flink_has_removed(tmp_path):
    """They select what has replaced them. Fails before: most could not be imported."""
    (tmp_path / "in.txt").write_text("a\nbb\n")
    settings, source, *rows = printed("former.py", tmp_path / "checkpoints", tmp_path / "in.txt")
    assert settings.startswith("RestartStrategy(kind='fixed-delay', attempts=3, delay_ms=1000")
    assert settings.endswith("rocksdb TimeCharacteristic.EventTime")
    assert source == "('in',) committed EARLIEST"
    assert rows == ["Row(a='a', b=1)", "Row(a='bb', b=2)"]
    assert (tmp_path / "checkpoints" / "jobs" / "former").is_dir()


def test_what_is_absent_may_be_imported_and_says_what_to_use():
    assert printed("pulsar_or_not.py") == ["False", "1", "2"]
    done = run("pulsar_or_not.py", "--pulsar")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "pyflink.datastream.connectors.pulsar.PulsarSource is not supported: Pulsar is accessed through Spark" in last
    assert "write with stream.for_each_epoch" in last


@pytest.mark.slow
def test_forkpoint_run_tells_jobs_without_names_apart_and_notes_how_they_were_started(tmp_path):
    program = tmp_path / "two_jobs.py"
    program.write_text(
        "from pyflink.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "numbers = env.from_collection([1, 2])\n"
        "for factor in (10, 100):\n"
        "    numbers.map(lambda n: n * factor).print()\n"
        "    env.execute()\n"
    )

    def forkpoint(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["-W", "ignore", "-m", "forkpoint.cli", "--state-root", tmp_path / "state", *arguments]
        return run_python(command, capture_output=True, text=True, env={**os.environ, "FORKPOINT_ENGINE": "local"}, check=True)

    first = forkpoint("--output", "json", "run", "--pyflink", str(program))
    shown = [line for line in first.stdout.splitlines() if line.startswith("{")]
    assert [line for line in first.stdout.splitlines() if line not in shown] == ["10", "20", "100", "200"]
    events = [json.loads(line) for line in shown or first.stderr.splitlines()]
    assert list(dict.fromkeys(event["job"] for event in events)) == ["forkpoint-job", "forkpoint-job-2"]
    again = forkpoint("run", "-s", "none", f"run:{events[0]['run']}")
    assert again.stdout.splitlines() == ["10", "20", "100", "200"]


def test_usage():
    done = run_python(["-m", "forkpoint.pyflink"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.startswith("usage: python -m forkpoint.pyflink APP")) == (2, True)
    assert run("not_there.py").returncode == 1


def test_jobs_that_a_program_does_not_wait_for_run_to_their_end(tmp_path):
    """As on a cluster of Flink's."""
    (tmp_path / "app.py").write_text(
        "from pyflink.table import EnvironmentSettings, TableEnvironment\n"
        "tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())\n"
        "tables.execute_sql(\"CREATE TABLE d (a INT) WITH ('connector' = 'datagen', 'number-of-rows' = '3')\")\n"
        "tables.execute_sql(\"CREATE TABLE p (n BIGINT) WITH ('connector' = 'print')\")\n"
        "tables.execute_sql(\"CREATE TABLE q WITH ('connector' = 'print') LIKE p (EXCLUDING OPTIONS)\")\n"
        'tables.execute_sql("INSERT INTO p SELECT COUNT(*) FROM d")\n'
        'tables.execute_sql("INSERT INTO q SELECT COUNT(*) + 1 FROM d")\n'
    )
    command = ["-W", "ignore", "-m", "forkpoint.pyflink", tmp_path / "app.py"]
    environment = {**os.environ, "FORKPOINT_STATE_ROOT": str(tmp_path / "state"), "FORKPOINT_ENGINE": "local"}
    done = run_python(command, capture_output=True, text=True, env=environment)
    assert {"+I[3]", "+I[4]"} <= set(done.stdout.splitlines()), done.stderr
    assert sorted(path.name for path in (tmp_path / "state" / "jobs").iterdir()) == ["insert-into-p", "insert-into-q"]
