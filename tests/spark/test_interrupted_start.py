"""Ctrl-C while Spark starts: its JVM goes with the driver, whatever it is at, and lets go of the driver's output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import forkpoint as fp

env = fp.StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(fp.CounterSource(per_epoch=1), fp.WatermarkStrategy.no_watermarks(), "n").uid("n")
numbers.sink_to(fp.DiscardSink()).uid("out")
env.execute("interrupted")
"""


def marked(mark: str) -> dict[int, str]:
    """The processes that have the mark in their environment, and what they run."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"MARK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = os.readlink(entry / "exe")
        except OSError:  # it has ended, or is another user's
            continue
    return found


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("command", [["-m", "forkpoint.cli", "run", "app.py"], ["app.py"]], ids=["forkpoint", "python"])
@pytest.mark.parametrize("delay", [0.0, 0.5, 1.5, 3.0])
def test_the_jvm_goes_with_the_driver(tmp_path: Path, command: list[str], delay: float) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    env = {**os.environ, "MARK": mark, "SPARK_MASTER": "local[1]", "FORKPOINT_ENGINE": "spark"}
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        while process.poll() is None and not any("java" in exe for exe in marked(mark).values()):
            time.sleep(0.01)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to all of them
        out, _ = process.communicate()  # comes to its end when nobody holds the output any more
        assert process.returncode == 130, out
        assert "Traceback" not in out
        while marked(mark):  # a process may be on its way out
            time.sleep(0.05)
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
