"""Jobs on a real YARN with their state on a real HDFS: containers die; the driver runs in the cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest

from cluster.mini_hadoop import MiniHadoop
from cluster.published import Published
from cluster.slim_environment import make_environment

pytestmark = pytest.mark.spark

ROWS = 20_000
KEYS = 100
SPARK_HOME = Path(pyspark.__file__).parent
CONFIGURATION = {
    "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
    "spark.driver.host": "127.0.0.1",
    "spark.yarn.am.memory": "400m",
    "spark.executor.instances": "2",
    "spark.executor.memory": "512m",
    "spark.pyspark.python": sys.executable,
}

APP = """
import sys
import forkpoint as fp

env = fp.StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(50).set_parallelism(2).set_state_root(sys.argv[3])
lines = env.from_source(fp.FileSource.text(sys.argv[1]), fp.WatermarkStrategy.no_watermarks(), "lines").uid("lines")
numbers = lines.map(int, output_type=int).uid("numbers")


def count(number, state):
    state = (state or 0) + 1
    return (number, state), state


counted = numbers.key_by(lambda n: n % 100, int).map_with_state(count, int, tuple[int, int]).uid("counts")
counted.sink_to(fp.FileSink.csv(sys.argv[2])).uid("out")
env.execute("counting")
"""

PARSE = """
def parse(line):
    assert "/container_" in sys.executable, sys.executable
    return int(line)

"""


@pytest.fixture(scope="module")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHadoop]:
    started = MiniHadoop(tmp_path_factory.mktemp("yarn") / "hadoop", "yarn")
    try:
        yield started
    finally:
        started.stop()


class Program:
    def __init__(self, home: Path, hadoop: MiniHadoop) -> None:
        self.app, self.input, self.output = home / "app.py", home / "in", home / "out"
        self.input.mkdir()
        self.output.mkdir()
        self.published = Published(self.output)
        self.app.write_text(APP)
        self.root = f"{hadoop.hdfs}/{home.name}"
        self.hadoop = hadoop
        self.processes: list[subprocess.Popen[str]] = []
        dropped = ("SPARK_MASTER", "FORKPOINT_ENGINE")
        self.environment = {key: value for key, value in os.environ.items() if key not in dropped}
        self.environment["HADOOP_CONF_DIR"] = str(hadoop.configuration)

    @property
    def arguments(self) -> list[str]:
        return [str(self.input), str(self.output), self.root]

    def write(self, part: int, of: int) -> None:
        rows = range(ROWS * part // of, ROWS * (part + 1) // of)
        hidden = self.input / f".{part}"
        hidden.write_text("".join(f"{n}\n" for n in rows))
        hidden.rename(self.input / f"{part}.txt")

    def start(self, *command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*command],
            cwd=self.app.parent,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=self.environment,
        )
        self.processes.append(process)
        return process

    @property
    def forkpoint(self) -> list[str]:
        return [sys.executable, "-m", "forkpoint.cli", "--state-root", self.root]

    def command(self, *arguments: str) -> str:
        return subprocess.check_output([*self.forkpoint, *arguments], env=self.environment, text=True)

    def rows(self) -> list[tuple[int, int]]:
        return self.published.rows()

    def wait_for(self, number: int, process: subprocess.Popen[str]) -> None:
        self.published.wait_for(number, process)

    def check_output(self) -> None:
        assert Counter(self.rows()) == Counter((n, n // KEYS + 1) for n in range(ROWS))

    def executors(self) -> list[int]:
        """The processes of its executors' containers."""
        return self._containers("YarnCoarseGrainedExecutorBackend")

    def masters(self) -> list[int]:
        """The process of its application master, which has the driver in it in cluster mode."""
        return self._containers("org.apache.spark.deploy.yarn.ApplicationMaster")

    def _containers(self, name: str) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                line = (entry / "cmdline").read_bytes()
                is_jvm = name.encode() in line and b"java" in line.split(b"\0")[0]
                if is_jvm and str(self.hadoop.directory).encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found


@pytest.fixture
def program(tmp_path: Path, hadoop: MiniHadoop) -> Iterator[Program]:
    made = Program(tmp_path, hadoop)
    try:
        yield made
    finally:
        for process in made.processes:  # those of a test that failed
            process.kill()
            process.wait()


def settings(without: str) -> list[str]:
    return [part for name, value in CONFIGURATION.items() if name != without for part in ("--conf", f"{name}={value}")]


@pytest.mark.slow
def test_a_container_dies_and_no_result_is_lost_or_repeated(program: Program, tmp_path: Path) -> None:
    """The containers' Python, with forkpoint in it, is what the driver ships."""
    program.write(0, 3)
    python = make_environment(tmp_path / "environment", "hdfs-native")
    program.environment.pop("PYTHONPATH", None)
    program.environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    program.app.write_text(PARSE + APP.replace("map(int", "map(parse"))
    process = program.start(
        str(python),
        "-m",
        "forkpoint.cli",
        "run",
        "--master",
        "yarn",
        "--ship-env",
        *settings(without="spark.pyspark.python"),
        str(program.app),
        "--",
        *program.arguments,
    )
    program.wait_for(ROWS // 3, process)

    killed = program.executors()
    assert len(killed) == 2
    os.kill(killed[0], signal.SIGKILL)
    program.write(1, 3)
    program.wait_for(ROWS * 2 // 3, process)
    while len(set(program.executors()) - {killed[0]}) < 2:  # YARN has started another one
        time.sleep(0.1)
    program.write(2, 3)
    program.wait_for(ROWS, process)

    program.command("cancel", "counting")
    _, err = process.communicate()
    assert process.returncode == 0, err
    program.check_output()


@pytest.mark.slow
def test_a_driver_in_the_cluster_is_started_again_stopped_from_outside_and_resumed(program: Program) -> None:
    program.write(0, 3)
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "yarn", "--deploy-mode", "cluster"]
    process = program.start(*submit, *settings(without="spark.driver.host"), str(program.app), *program.arguments)
    program.wait_for(ROWS // 3, process)
    assert " running " in program.command("list")
    refused = program.start(*program.forkpoint, "upgrade", "counting", str(program.app), "--", *program.arguments)
    _, err = refused.communicate()  # it would come back in client mode
    assert refused.returncode == 1
    assert "spark-submit --deploy-mode cluster" in err
    (master,) = program.masters()
    os.kill(master, signal.SIGKILL)  # YARN starts another one
    program.write(1, 3)
    program.wait_for(ROWS * 2 // 3, process)
    program.command("savepoint", "counting", "--label", "half")
    program.command("stop", "counting")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "half" in program.command("savepoints", "counting")

    program.write(2, 3)
    program.environment["FORKPOINT_ENGINE"] = "local"  # the same job, without a cluster
    process = program.start(sys.executable, str(program.app), *program.arguments)
    program.wait_for(ROWS, process)
    program.command("stop", "counting")
    _, err = process.communicate()
    assert process.returncode == 0, err
    program.check_output()
