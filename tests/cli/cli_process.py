"""Programs to run, and the command line as a process of its own, on the local engine."""

import json
import os
import subprocess
import time
from pathlib import Path

from click.testing import CliRunner

from forkpoint.cli import main
from programs import Python, kill_if_running

DIGITS = """
import sys
from typing import NamedTuple

import forkpoint as fp
import beside


class Counted(NamedTuple):
    digit: int
    count: int


def count(number, state):
    state = beside.next_count(state)
    return Counted(number % 10, state), state


def build(env, stop=None):
    numbers = env.from_source(
        fp.CounterSource(stop, per_epoch=100), fp.WatermarkStrategy.no_watermarks(), "numbers"
    ).uid("numbers")
    numbers.key_by(lambda n: n % 10, int).map_with_state(count, int).uid("counts").sink_to(fp.DiscardSink()).uid("out")


if __name__ == "__main__":
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(50)
    build(env, int(sys.argv[1]) if len(sys.argv) > 1 else None)
    env.execute("digits")
"""

BESIDE = """
def next_count(state):
    return (state or 0) + 1
"""


class Cli:
    """``forkpoint`` in a directory of its own, with the state root ``.forkpoint`` in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("FORKPOINT_")} | {
            "FORKPOINT_ENGINE": "local",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.pids: list[int] = []
        self.write("digits.py", DIGITS)
        self.write("beside.py", BESIDE)

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def start(self, *args: str) -> subprocess.Popen[str]:
        command = ["-m", "forkpoint.cli", *args]
        return Python(command, cwd=self.directory, env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __call__(self, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        process = self.start(*args)
        out, err = process.communicate()
        assert process.returncode == code, f"{args} ended with {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def json(self, *args: str) -> dict:
        found = json.loads(self("--output", "json", *args).stdout)
        if "pid" in found:
            self.pids.append(found["pid"])
        return found

    def look(self, *args: str) -> dict:
        """A command that only looks, in this process: it takes no time to start."""
        root = str(self.directory / ".forkpoint")
        done = CliRunner().invoke(main, ["--state-root", root, "--output", "json", *args], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def jobs(self, *args: str) -> list[dict]:
        return self.look("list", *args)["jobs"]

    def wait_epoch(self, epoch: int, job: str = "digits") -> dict:
        """Wait until the job has committed this epoch."""
        while True:
            for each in self.look("list")["jobs"]:
                if each["job"] == job and each["epoch"] >= epoch:
                    return each
            time.sleep(0.05)

    def kill_all(self) -> None:
        """End the drivers that were started here and still run."""
        kill_if_running(self.pids, str(self.directory))
