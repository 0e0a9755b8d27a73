"""Processes that run Nexmark's queries one after the other, so that starts don't count."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
HOME = HERE.parents[1]
sys.path.append(str(HERE.parent))
sys.path.append(str(HOME / "tests"))
from flink_in_turn import OPENS  # noqa: E402
from flink_in_turn import Figure as Figure  # noqa: E402
from scenarios import use_cores  # noqa: E402

from servers.jars import compiled, jars, java  # noqa: E402

FLINK = {"flink-heap": ("hashmap", True), "flink-rocksdb": ("rocksdb", True), "flink-heap-unbatched": ("hashmap", False)}
"""Flink's sides in Java: their state backends, and whether mini-batches are on."""
PYFLINK = HOME / ".flink" / "venv" / "bin" / "python"
ON_PYFLINK = ("q0", "q2", "q11")
_FACTORIES = "META-INF/services/org.apache.flink.table.factories.Factory"


@dataclass
class Side:
    """``log``: what it has printed besides answers."""

    name: str
    process: subprocess.Popen[str]
    log: Path
    directory: Path
    _asked: int = 0

    def ask(self, statements: Sequence[str]) -> list[str]:
        """Run statements; the lines of the answer: seconds of an INSERT or a STREAM, else rows."""
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


def command(name: str, parallelism: int, directory: Path) -> list[str]:
    if name == "pyflink":
        return [str(PYFLINK), str(HERE / "pyflink_side.py"), str(parallelism), str(directory / name), str(_jar(directory))]
    if name not in FLINK:
        return [sys.executable, str(HERE / "forkpoint_side.py"), name, str(parallelism), str(directory / name)]
    backend, mini_batch = FLINK[name]
    classpath = f"{_classes()}:{HERE}:{_libraries()}/*"
    of_side = [backend, str(parallelism), str(mini_batch).lower(), str(directory / name)]
    return [java(), *OPENS, "-Xmx4g", "-Dfile.encoding=UTF-8", "-cp", classpath, "NexmarkOnFlink", *of_side]


def _libraries() -> Path:
    return jars("flink-sql", HERE.parent / "sql" / "flink.xml")


def _classes() -> Path:
    return compiled(HERE / "NexmarkOnFlink.java", f"{_libraries()}/*")


def _jar(directory: Path) -> Path:
    """The table connector, as PyFlink wants it."""
    with zipfile.ZipFile(directory / "nexmark.jar", "w") as jar:
        for each in _classes().iterdir():
            jar.write(each, each.name)
        jar.write(HERE / _FACTORIES, _FACTORIES)
    return directory / "nexmark.jar"


@contextmanager
def running(names: Sequence[str], parallelism: int, directory: Path) -> Iterator[list[Side]]:
    """Sides of these names: spark, local, pyflink, or one of FLINK. All use the same processors."""
    environment = {**os.environ, "SPARK_MASTER": f"local[{parallelism}]"}
    ours = f"{HERE}:{os.environ.get('PYTHONPATH', '')}"
    with ExitStack() as stack:
        found = []
        for name in names:
            log = directory / f"{name}.log"
            process = subprocess.Popen(
                command(name, parallelism, directory),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(log.open("w")),
                text=True,
                env=environment | {"PYTHONPATH": "" if name == "pyflink" else ours},
                cwd=directory,
                preexec_fn=use_cores,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            found.append(Side(name, process, log, directory))
        yield found
