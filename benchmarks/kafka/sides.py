"""The programs that the benchmarks compare: each does the same in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent
HOME = HERE.parents[1]
sys.path.append(str(HOME / "tests"))
from servers.jars import jars, java  # noqa: E402

_OPENS = [f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in ("util", "lang", "time")]
PYFLINK = HOME / ".flink" / "venv" / "bin" / "python"
NAMES = ("flink-java", "spark", "spark-agg", "local", "local-agg", "spark-own", "pyflink")


def available() -> list[str]:
    return [name for name in NAMES if name != "pyflink" or PYFLINK.exists()]


def command(
    name: str, brokers: str, source: str, to: str, state: Path, parallelism: int, interval_ms: int, epoch_rows: int
) -> list[str]:
    """How a side is started; it runs until it is killed."""
    places = [brokers, source, to, str(state)]
    if name == "flink-java":
        return [
            java(),
            *_OPENS,
            "-Xmx2g",
            "-cp",
            f"{_compiled()}:{jars('flink-kafka', HERE / 'flink.xml')}/*",
            "FlinkCount",
            *places,
            str(parallelism),
            str(interval_ms),
        ]
    if name == "pyflink":
        program = HERE / "pyflink_count.py"
        return [str(PYFLINK), str(program), *places, str(parallelism), str(interval_ms), str(_connector())]
    if name == "spark-own":
        program, connector = HERE / "spark_count.py", jars("spark-kafka", HERE / "spark.xml")
        rest = [str(parallelism), str(interval_ms), str(epoch_rows), str(connector)]
        return [sys.executable, str(program), *places, *rest]
    engine, _, aggregates = name.partition("-")
    options = ["--engine", engine, "--counted-by", aggregates or "function", "--parallelism", str(parallelism)]
    options += ["--interval-ms", str(interval_ms), "--epoch-rows", str(epoch_rows)]
    return [sys.executable, str(HERE / "counting.py"), *places, *options]


def _compiled() -> Path:
    libraries, classes = jars("flink-kafka", HERE / "flink.xml"), HOME / "build" / "flink-kafka" / "classes"
    subprocess.run(
        [java("javac"), "-nowarn", "-cp", f"{libraries}/*", "-d", str(classes), str(HERE / "FlinkCount.java")],
        check=True,
    )
    return classes


def _connector() -> Path:
    return jars("flink-kafka", HERE / "flink.xml")


@contextmanager
def running(name: str, arguments: list[str], log: Path) -> Iterator[psutil.Process]:
    """Run a side, in a session of its own; its processes are killed at the end."""
    environment = os.environ | {
        "SPARK_MASTER": os.environ.get("SPARK_MASTER", "local[4]"),
        "PYTHONPATH": f"{HOME / 'src'}:{HOME / 'tests' / 'kafka'}:{os.environ.get('PYTHONPATH', '')}",
    }
    with log.open("wb") as output:
        started = subprocess.Popen(arguments, stdout=output, stderr=output, env=environment, start_new_session=True)
    try:
        yield psutil.Process(started.pid)
    finally:
        for each in _session(started.pid):
            each.send_signal(signal.SIGKILL)
        started.wait()


def cpu_seconds(process: psutil.Process) -> float:
    """What a side's processes have used, user and system."""
    total = 0.0
    for each in _session(process.pid):
        try:
            total += sum(each.cpu_times()[:4])  # with the children that have ended
        except psutil.Error:
            continue
    return total


def _session(leader: int) -> list[psutil.Process]:
    found = []
    for each in psutil.process_iter():
        try:
            if os.getsid(each.pid) == leader:
                found.append(each)
        except OSError:
            continue
    return found
