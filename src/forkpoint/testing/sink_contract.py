"""The contract of sinks, as tests against a real system; for forkpoint's and third-party connectors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import cloudpickle
import pyarrow as pa

from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.contract.sink import Committer, CommitterContext, CommittingSink, Sink, SinkContext
from forkpoint.contract.source import JSON
from forkpoint.errors import ForkpointError
from forkpoint.functions import WatermarkStrategy
from forkpoint.testing.local import run_local
from forkpoint.testing.source import ABORT, PAUSE, Eof
from forkpoint.types import TypeInformation, type_of

Row: TypeAlias = tuple[int, str]
"""A unique number, and a text."""

JOB, UID = "contract", "sink"
SUBTASKS = 2
HOSTILE = (
    "",
    " ",
    "'",
    '"',
    "\\",
    "\\n",
    "\n",
    "\r\n",
    "\t",
    ",",
    ";",
    "null",
    "NULL",
    "None",
    "NaN",
    "0",
    "-0",
    "%s",
    "{}",
    "$1",
    "a'; DROP TABLE x; --",
    "\u00e4\u00f6\u00fc",
    "e\u0301",
    "\u0130\u0131",
    "\u200b",
    "\ufeff",
    "\u2028",
    "\U0001f9ea",
    "x" * 3000,
)
MOMENTS = (0.1, 0.4, 0.7, 0.95)  # of a commit's duration, at which its process is killed


class SinkContract(ABC):
    """Subclass it as ``Test…``, and implement how to create a target in the system, write to it, and read it. Each test gets a
    new target.

    ``hostile``: texts that must arrive unchanged. ``type``: the type of the elements. ``exactly_once``: False if a repeated
    commit may write its rows again.
    """

    exactly_once: ClassVar[bool] = True
    hostile: ClassVar[Sequence[str]] = HOSTILE
    type: ClassVar[Any] = Row

    @abstractmethod
    def create(self) -> Any:
        """A new, empty topic, queue, table, directory, …"""

    @abstractmethod
    def sink(self, target: Any) -> Sink[Any]:
        """A sink that writes to the target."""

    @staticmethod
    @abstractmethod
    def element(row: Row) -> Any:
        """The element for a row. Also runs in tasks."""

    @abstractmethod
    def read(self, target: Any) -> list[Row]:
        """All rows that a consumer sees, in any order."""

    def test_every_text_arrives_as_it_is(self, tmp_path: Path) -> None:
        runs = _Runs(self, tmp_path)
        rows = list(enumerate(self.hostile))
        runs.commit(runs.stage(1, rows))
        self._assert_read(runs.target, rows)

    def test_nothing_is_visible_before_its_commit_nor_of_attempts_that_failed(self, tmp_path: Path) -> None:
        runs = _Runs(self, tmp_path)
        runs.stage(1, _rows(1), attempt="failed")
        runs.stage(1, _rows(1), attempt="aborted", abort=True)
        staged = runs.stage(1, _rows(1))
        assert self.read(runs.target) == []
        runs.commit(staged)
        self._assert_read(runs.target, _rows(1))

    def test_commits_are_repeated(self, tmp_path: Path) -> None:
        """Each start of a job repeats commits that may not have been published."""
        runs = _Runs(self, tmp_path)
        first, second, third = (runs.stage(epoch, _rows(epoch)) for epoch in (1, 2, 3))
        for each in (first, first, second, second, third, third):
            runs.commit(each)
        self._assert_read(runs.target, _rows(1, 2, 3))

    def test_an_older_driver_that_wakes_up_changes_nothing(self, tmp_path: Path) -> None:
        runs = _Runs(self, tmp_path)
        outputs = [runs.stage(epoch, _rows(epoch)) for epoch in (1, 2, 3)]
        older = runs.commit_process()
        older.commit(outputs[0], 1)
        for each in outputs:
            runs.commit(each)
        with suppress(ForkpointError):  # it may find that it was superseded
            for each in outputs[1:]:
                older.commit(each, each.epoch)
        older.close()
        self._assert_read(runs.target, _rows(1, 2, 3))

    def test_two_drivers_at_the_same_commits(self, tmp_path: Path) -> None:
        runs = _Runs(self, tmp_path)
        outputs = [runs.stage(epoch, _rows(epoch)) for epoch in (1, 2, 3)]

        def commit_all() -> None:
            with suppress(ForkpointError):  # a driver may find that the other is newer
                for each in outputs:
                    runs.commit(each)

        threads = [threading.Thread(target=commit_all) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for each in outputs:
            runs.commit(each)
        self._assert_read(runs.target, _rows(1, 2, 3))

    def test_a_process_that_is_killed_at_any_moment_of_a_commit(self, tmp_path: Path) -> None:
        runs = _Runs(self, tmp_path)
        first, *others = [runs.stage(epoch, _rows(epoch)) for epoch in range(1, len(MOMENTS) + 2)]
        started = time.perf_counter()
        runs.commit(first)
        takes_s = time.perf_counter() - started
        with _KilledProcesses([runs.commit_call(each) for each in others]) as processes:
            for moment, staged in zip(MOMENTS, others, strict=True):
                processes.kill_next(takes_s * moment)
                runs.commit(staged)
        self._assert_read(runs.target, _rows(*range(1, len(MOMENTS) + 2)))

    def test_a_job_dies_is_stopped_and_goes_on_at_another_parallelism(self, tmp_path: Path) -> None:
        target, element = self.create(), self.element
        stop = Eof(savepoint=True)
        script = [*range(10), PAUSE, *range(10, 20), ABORT, *range(20, 25), stop, *range(25, 30), PAUSE, *range(30, 40)]

        def build(env: StreamExecutionEnvironment, script: Any) -> None:
            numbers = env.from_source(script, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
            rows = numbers.key_by(lambda n: n % 5, int).map(lambda n: element((n, f"text {n}")), self.type).uid("rows")
            rows.sink_to(self.sink(target)).uid(UID)

        first = run_local(build, script, state_root=tmp_path, epochs=4, parallelism=1)
        assert first.deaths == 1
        run_local(build, script, state_root=tmp_path, epochs=4, parallelism=3, restore=first.savepoint)
        self._assert_read(target, [(n, f"text {n}") for n in range(40)])

    def _assert_read(self, target: Any, rows: Sequence[Row]) -> None:
        found = self.read(target)
        assert sorted(found if self.exactly_once else set(found)) == sorted(rows)


def _rows(*epochs: int) -> list[Row]:
    return [(epoch * 100 + n, f"row {n} of {epoch}") for epoch in epochs for n in range(20)]


class _KilledProcesses:
    """Runs each call in a process that is forked from a preloaded process, and killed."""

    def __init__(self, calls: Sequence[Callable[[], None]]) -> None:
        program = f"from {__name__} import fork_each; fork_each()"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # includes the tests' modules
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._write(cloudpickle.dumps(calls))

    def __enter__(self) -> _KilledProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def kill_next(self, after_s: float) -> None:
        """Start the next process, and kill it after this time."""
        self._write(b"\n")
        process = self._read()
        time.sleep(after_s)
        os.kill(process, signal.SIGKILL)
        self._write(b"\n")
        assert self._read() in (0, signal.SIGKILL), "the commit failed; see above"

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def _read(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


def fork_each() -> None:
    """The child process of `_KilledProcesses`: forks a process per call, and prints its id at the start and its exit status."""
    for call in cloudpickle.load(sys.stdin.buffer):
        sys.stdin.buffer.readline()
        process = os.fork()
        if not process:
            try:
                call()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(process, flush=True)
        sys.stdin.buffer.readline()  # waits for the process only now, so that the system cannot reuse its id before
        _, status = os.waitpid(process, 0)
        print(status, flush=True)


@dataclass
class _Staged:
    epoch: int
    committables: list[JSON]


@dataclass
class _Batch:
    """A batch of elements."""

    values: list[Any]
    type: TypeInformation[Any]
    table: pa.RecordBatch | None = None
    timestamps: None = None


class _Runs:
    """Uses a sink like the runs of a job."""

    def __init__(self, contract: SinkContract, root: Path) -> None:
        self.contract, self.root = contract, str(root)
        self.target = contract.create()
        self.sink = contract.sink(self.target).for_job(JOB)
        self.type: TypeInformation[Any] = type_of(contract.type)
        self.sink.check_type(self.type)  # like each start of a job
        self.newest = 0

    def stage(self, epoch: int, rows: Sequence[Row], attempt: str = "", abort: bool = False) -> _Staged:
        """Stage an epoch's output of two subtasks."""
        committables: list[JSON] = []
        for subtask in range(SUBTASKS):
            context = SinkContext(UID, JOB, epoch, subtask, f"{attempt}{epoch:04}{subtask:04}", 1, self.root)
            writer = self.sink.create_writer(context)
            elements = [self.contract.element(row) for row in rows[subtask::SUBTASKS]]
            half = len(elements) // 2
            for part in (elements[:half], elements[half:]):
                writer.write(_Batch(part, self.type))
            committables += [] if abort else writer.prepare_commit()
            if abort:
                writer.abort()
        self.sink.check(committables)
        self.newest = epoch
        return _Staged(epoch, json.loads(json.dumps(committables)))

    def commit(self, staged: _Staged) -> None:
        self.commit_call(staged)()

    def commit_call(self, staged: _Staged) -> Callable[[], None]:
        """A call that another process can run."""
        return partial(_commit, self.sink, self.root, staged, self.newest)

    def commit_process(self) -> _CommitProcess:
        return _CommitProcess(self.sink, self.root)


def _commit(sink: Sink[Any], root: str, staged: _Staged, newest: int) -> None:
    with closing(_CommitProcess(sink, root)) as process:
        process.commit(staged, newest)


class _CommitProcess:
    """The commits of a driver process."""

    def __init__(self, sink: Sink[Any], root: str) -> None:
        self._sink, self._root = sink, root
        self._incarnation = checksum(root.encode())  # each test is a different job
        self._committers: dict[str, Committer] = {}

    def commit(self, staged: _Staged, newest: int) -> None:
        if not isinstance(self._sink, CommittingSink):
            self._sink.commit(staged.committables, staged.epoch)
            return
        groups: dict[str, list[JSON]] = {}
        for each in staged.committables:
            groups.setdefault(self._sink.group(each), []).append(each)
        for group, committables in groups.items():
            if group not in self._committers:
                context = CommitterContext(UID, JOB, group, self._incarnation, self._root)
                self._committers[group] = self._sink.create_committer(context)
            self._committers[group].commit(EpochOutput(epoch=staged.epoch, committables=committables), newest)

    def close(self) -> None:
        for committer in self._committers.values():
            committer.close()
