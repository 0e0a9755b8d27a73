"""Processes that run Nexmark's queries one after the other, so that starts don't count."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
sys.path.append(str(HERE.parents[1] / "tests"))
from flink_in_turn import FLINK, OPENS  # noqa: E402

from servers.jars import compiled, jars, java  # noqa: E402


@dataclass
class Side:
    """``log``: what it has printed besides answers."""

    name: str
    process: subprocess.Popen[str]
    log: Path
    directory: Path
    _asked: int = 0

    def ask(self, statements: Sequence[str]) -> list[str]:
        """Run statements; the lines of the answer: seconds, or rows."""
        file = self.directory / f"{self.name}-{self._asked}.sql"
        self._asked += 1
        file.write_text("\0".join(statements))
        assert self.process.stdin is not None
        self.process.stdin.write(f"{file}\n")
        self.process.stdin.flush()
        first = self._line()
        if statements[-1].startswith(("INSERT", "STREAM")):
            return [first]
        return [self._line() for _ in range(int(first))]

    def _line(self) -> str:
        output: IO[str] | None = self.process.stdout
        line = output.readline() if output is not None else ""
        if not line:
            raise SystemExit(f"{self.name} has ended: {self.log.read_text()[-3000:]}")
        return line.rstrip("\n")


def command(name: str, parallelism: int, directory: Path, *, mini_batch: bool) -> list[str]:
    if name not in FLINK:
        return [sys.executable, str(HERE / "forkpoint_side.py"), name, str(parallelism), str(directory / name)]
    libraries = f"{jars('flink-sql', HERE.parent / 'sql' / 'flink.xml')}/*"
    classes = compiled(HERE / "NexmarkOnFlink.java", libraries)
    classpath = f"{classes}:{HERE}:{libraries}"
    of_side = [FLINK[name], str(parallelism), str(mini_batch).lower(), str(directory / name)]
    return [java(), *OPENS, "-Xmx4g", "-Dfile.encoding=UTF-8", "-cp", classpath, "NexmarkOnFlink", *of_side]


@contextmanager
def running(names: Sequence[str], parallelism: int, directory: Path, *, mini_batch: bool = True) -> Iterator[list[Side]]:
    """Sides of these names, that of Spark or the local engine or one of FLINK."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}",
        "SPARK_MASTER": f"local[{parallelism}]",
    }
    with ExitStack() as stack:
        found = []
        for name in names:
            log = directory / f"{name}.log"
            process = subprocess.Popen(
                command(name, parallelism, directory, mini_batch=mini_batch),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(log.open("w")),
                text=True,
                env=environment,
                cwd=directory,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            found.append(Side(name, process, log, directory))
        yield found
