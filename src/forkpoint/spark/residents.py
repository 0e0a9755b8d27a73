"""Runs epochs in resident tasks: one long Spark job whose tasks, one for each subtask, take epoch after epoch from the driver.

A Spark job for each epoch costs some 40 ms of scheduling. So once epochs are short, tasks stay: Spark still places them on its
executors, restarts executors and isolates failures, but only the driver's messages separate one epoch from the next. The
rows of an exchange go through the driver, which is why large epochs remain jobs of their own.

Resident tasks occupy cores, so they end, and free them, whenever Spark has other work: a savepoint's, a rescaling's, or that of
another job of the same application. Any loss of a resident task ends them all; the epoch then runs again as a job, as Spark would
repeat its tasks.
"""

from __future__ import annotations

import logging
import os
import pickle
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, wait

from pyspark import SparkContext
from pyspark.core.rdd import _wrap_function

from forkpoint.errors import JobFailed
from forkpoint.graph.job import JobGraph
from forkpoint.graph.specs import EpochSinkSpec
from forkpoint.runtime.exchange.control import EpochContext, divide, encode_context, encode_part
from forkpoint.runtime.exchange.wire import ChunkRow, commits_in, inboxes
from forkpoint.spark.exchange import executor_cores, has_several_hosts
from forkpoint.spark.failures import unpack_failure
from forkpoint.spark.jvm import jvm_of
from forkpoint.spark.placement import place
from forkpoint.spark.resident_task import (
    CONNECT_S,
    HELLO,
    NOTIFY,
    Call,
    Done,
    ResidentStage,
    Work,
    connected,
    decode_done,
    encode,
)
from forkpoint.spark.rows import BlobSerializer
from forkpoint.spark.tasks import BackgroundStage, JobHandle

log = logging.getLogger("forkpoint")

SETTING = "spark.forkpoint.residentTasks"
SHORT_EPOCHS = 3
"""After so many short epochs in sequence, tasks stay."""
SHORT_S = 5.0
LARGE_BYTES = 16 << 20
"""An epoch that exchanges more through the driver is for Spark's shuffle."""
OTHERS_S = 0.5  # between looks at Spark's other jobs
BESIDE_S = 5.0  # for what runs beside epochs to end, before tasks start
END_S = 10.0  # for tasks to end after their connections
AGAIN_S = (10.0, 60.0, 600.0)  # after failed starts, and after tasks that stood in the way of other jobs
STEADY_S = 60.0  # tasks that have stayed so long count as no failure
_PLAINTEXT = ("spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled")


class ResidentsLost(Exception):
    """A resident task is gone, with the epoch that it computed."""


@dataclass
class _Pace:
    """Decides when tasks stay. ``short``: short epochs in sequence; ``failed``: starts in sequence that have not paid; ``after``:
    the (monotonic) time before which there is no other."""

    short: int = 0
    failed: int = 0
    after: float = 0.0

    def ran(self, seconds: float) -> None:
        """An epoch ran as a job."""
        self.short = self.short + 1 if seconds < SHORT_S else 0

    def due(self) -> bool:
        return self.short >= SHORT_EPOCHS and time.monotonic() >= self.after

    def ended(self, after_s: float) -> None:
        self.short = 0
        if after_s >= STEADY_S:
            self.failed = 0

    def has_failed(self) -> None:
        self.after = time.monotonic() + AGAIN_S[min(self.failed, len(AGAIN_S) - 1)]
        self.failed, self.short = self.failed + 1, 0


@dataclass
class Residents:
    """The resident tasks of one run. ``job``: runs a block's Spark jobs with local properties, on the calling thread.
    ``properties``: those of the tasks' job. Thread-safe: epochs run on one thread, and any thread may ask for the cores."""

    sc: SparkContext
    handle: JobHandle
    parallelism: int
    stages: int
    job: Callable[[Mapping[str, str]], AbstractContextManager[None]]
    properties: Mapping[str, str]
    _pace: _Pace = field(default_factory=_Pace)
    _lock: threading.RLock = field(default_factory=threading.RLock)  # held while an epoch runs
    _waiting: int = 0  # threads that need the cores, or have them
    _changed: threading.Condition = field(default_factory=threading.Condition)  # of what runs beside epochs
    _starting: bool = False
    _beside: int = 0
    _interrupted: bool = False
    _tasks: _Tasks | None = None

    # -- epochs

    def run(self, context: EpochContext, plans: Sequence[bytes], exchange: str) -> list[bytes] | None:
        """Run an epoch; returns the blobs of its commit rows. None if it has to run as a job. ``exchange``: see ``Work``."""
        with self._ready() as tasks:
            if tasks is None:
                return None
            tasks.exchanged = 0
            common, parts = divide(context, self.parallelism)
            sent, encoded = encode_context(common), [encode_part(part) for part in parts]
            rows: list[ChunkRow] = []
            if plans:
                numbered = dict(enumerate(plans))
                shares = [dict(list(numbered.items())[at :: self.parallelism]) for at in range(self.parallelism)]
                pairs = zip(encoded, shares, strict=True)
                rows = tasks.ask([Work(0, sent, part, share, [], exchange) if share else None for part, share in pairs])
            for stage in range(1, self.stages + 1):
                shared = inboxes(rows, self.parallelism)
                works = [Work(stage, sent, part, {}, own, exchange) for part, own in zip(encoded, shared, strict=True)]
                rows = tasks.ask(works)
            if tasks.exchanged > LARGE_BYTES:
                self._end("their epochs have become large")
            return [blob for _, _, _, blob in commits_in(rows)]

    def notify(self, context: EpochContext) -> bool:
        """Notify all subtasks; returns False if that has to run as a job."""
        with self._ready() as tasks:
            if tasks is None:
                return False
            common, parts = divide(context, self.parallelism)
            sent = encode_context(common)
            tasks.ask([Work(NOTIFY, sent, encode_part(part)) for part in parts])
            return True

    @contextmanager
    def _ready(self) -> Iterator[_Tasks | None]:
        """The tasks, if they run or are to stay from now on. A lost task ends them."""
        with self._lock:
            self._interrupted = False
            if self._tasks is None and not self._waiting and self._pace.due():
                with self._alone() as alone:
                    self._start() if alone else self._pace.has_failed()
            tasks = None if self._waiting else self._tasks
            try:
                yield tasks
            except ResidentsLost as lost:
                self._end(str(lost))
                if self._interrupted:
                    raise JobFailed("the epoch was interrupted") from lost
                raise
            except BaseException:
                self._end("the epoch has failed")
                raise

    def ran(self, seconds: float) -> None:
        """An epoch ran as a job."""
        self._pace.ran(seconds)

    @contextmanager
    def beside(self) -> Iterator[bool]:
        """While something runs beside epochs, as commits of each epoch do: no tasks start in the block, in which they would take
        the cores of a Spark job. Yields whether there are tasks already, for ``call``."""
        with self._changed:
            self._changed.wait_for(lambda: not self._starting)
            self._beside += 1
        try:
            yield self.stay
        finally:
            with self._changed:
                self._beside -= 1
                self._changed.notify_all()

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Nothing begins beside epochs in the block. Yields whether what had begun before has ended, as it soon does."""
        with self._changed:
            self._starting = True
            alone = self._changed.wait_for(lambda: not self._beside, BESIDE_S)
        try:
            yield alone
        finally:
            with self._changed:
                self._starting = False
                self._changed.notify_all()

    def call(self, stage: BackgroundStage, arguments: Sequence[bytes]) -> list[bytes]:
        """The results of a stage for each argument, while epochs run. Raises ResidentsLost."""
        tasks = self._tasks
        if tasks is None:
            raise ResidentsLost("the resident tasks have ended")
        return tasks.call(stage, arguments)

    @property
    def stay(self) -> bool:
        """Whether there are resident tasks at the moment."""
        return self._tasks is not None

    def interrupt(self) -> None:
        """Make a running epoch fail soon."""
        self._interrupted = True
        tasks = self._tasks
        if tasks is not None:
            tasks.close()

    # -- the cores

    @contextmanager
    def cores(self) -> Iterator[None]:
        """Without resident tasks in the block, whose work needs cores."""
        with self._lock:
            self._waiting += 1
            self._end("their cores are needed")
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    def close(self) -> None:
        with self._lock:
            self._end("the run has ended")

    def _start(self) -> None:
        try:
            self._tasks = _Tasks.started(self)
            log.debug("%d resident tasks run the epochs", self.parallelism)
        except ResidentsLost as problem:
            self._pace.has_failed()
            log.info("epochs go on as Spark jobs of their own: %s", problem)
        else:
            threading.Thread(target=self._watch, args=(self._tasks,), name="forkpoint-residents", daemon=True).start()

    def _end(self, why: str) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is not None:
            log.debug("the resident tasks end: %s", why)
            self._pace.ended(time.monotonic() - tasks.since)
            tasks.end()

    def _watch(self, tasks: _Tasks) -> None:
        """Leave the cores to other jobs of the application as long as it has some."""
        while self._tasks is tasks and not tasks.over.wait(OTHERS_S):
            with suppress(Exception):  # Spark may be ending
                if tasks.others():
                    with self.cores():
                        self._pace.has_failed()
                        while tasks.others():
                            time.sleep(OTHERS_S)


@dataclass
class _Tasks:
    """Running resident tasks, connected in the order of subtasks. ``group``: of their Spark job."""

    sc: SparkContext
    group: str
    token: str
    connections: list[Connection]
    calls: list[Connection]
    over: threading.Event
    exchanged: int = 0  # bytes of the epoch
    since: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._calling = threading.Lock()

    @staticmethod
    def started(of: Residents) -> _Tasks:
        """Start them; all have connected. Raises ResidentsLost."""
        if (slots := _slots(of.sc)) < of.parallelism:
            raise ResidentsLost(f"Spark has {slots} cores for {of.parallelism} subtasks")
        conf, group, over = of.sc.getConf(), f"forkpoint-resident-{secrets.token_hex(8)}", threading.Event()
        several = has_several_hosts(of.sc.master)
        host = conf.get("spark.driver.host", "127.0.0.1") if several else "127.0.0.1"
        bound = conf.get("spark.driver.bindAddress", host) if several else host
        key = secrets.token_bytes(32)
        with closing(socket.create_server((bound, 0), backlog=of.parallelism)) as server:
            stage = ResidentStage(of.handle, (host, server.getsockname()[1]), key)
            threading.Thread(target=_hold, args=(of, stage, group, over), name="forkpoint-resident-job", daemon=True).start()
            found: dict[tuple[int, bool], Connection] = {}
            until = time.monotonic() + CONNECT_S
            try:
                while len(found) < 2 * of.parallelism:
                    if over.is_set() or time.monotonic() > until:
                        raise ResidentsLost(f"not all of {of.parallelism} tasks have connected to {host}")
                    _accept(server, key, found)
            except BaseException:
                _Tasks(of.sc, group, stage.handle.token, list(found.values()), [], over).end()
                raise
        epochs, calls = ([found[subtask, calls] for subtask in range(of.parallelism)] for calls in (False, True))
        return _Tasks(of.sc, group, stage.handle.token, epochs, calls, over)

    def ask(self, works: Sequence[Work | None]) -> list[ChunkRow]:
        """The output of all tasks that have work, in the order of subtasks. Raises a task's exception, or ResidentsLost."""
        try:
            for connection, work in zip(self.connections, works, strict=True):
                if work is not None:
                    self._send(connection, encode(work))
            answers = [None if work is None else self._receive(at) for at, work in enumerate(works)]
        except (OSError, EOFError) as error:
            raise ResidentsLost(f"a task is gone: {error or type(error).__name__}") from error
        return [row for rows in answers if rows is not None for row in rows]

    def _send(self, connection: Connection, data: bytes) -> None:
        self.exchanged += len(data)
        connection.send_bytes(data)

    def _receive(self, subtask: int) -> list[ChunkRow]:
        done: Done = decode_done(self.connections[subtask].recv_bytes())
        if done.failure is None:
            return done.rows
        report = RuntimeError(done.failure)
        raise unpack_failure(report, self.token) or report

    def call(self, stage: BackgroundStage, arguments: Sequence[bytes]) -> list[bytes]:
        """The results of a stage for the arguments, each in the task of the same number."""
        pickled, results = pickle.dumps(stage, protocol=5), []
        try:
            with self._calling:
                for start in range(0, len(arguments), len(self.calls)):
                    part = list(zip(self.calls, arguments[start : start + len(self.calls)], strict=False))
                    for connection, argument in part:
                        connection.send_bytes(encode(Call(pickled, argument)))
                    answers = [decode_done(connection.recv_bytes()) for connection, _ in part]
                    for done in answers:
                        if done.failure is not None:
                            raise RuntimeError(done.failure)
                    results += [done.result for done in answers]
        except (OSError, EOFError) as error:
            raise ResidentsLost(f"a task is gone: {error or type(error).__name__}") from error
        return results

    def others(self) -> bool:
        """Whether the application has other jobs that run or wait."""
        tracker = self.sc.statusTracker()
        own = set(tracker.getJobIdsForGroup(self.group))
        return any(job not in own for job in tracker.getActiveJobsIds())

    def close(self) -> None:
        for connection in (*self.connections, *self.calls):
            with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as same:
                same.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads

    def end(self) -> None:
        self.close()
        for connection in (*self.connections, *self.calls):
            with suppress(OSError):
                connection.close()
        if not self.over.wait(END_S):
            self.sc.cancelJobGroup(self.group)
            self.over.wait(END_S)


def can_stay(sc: SparkContext, graph: JobGraph) -> bool:
    """Whether a job's tasks may stay: its epochs must not need Spark's cores besides, nor its network encryption."""
    conf = sc.getConf()
    return (
        conf.get(SETTING, "true") == "true"
        and not graph.frame_sources
        and not any(isinstance(operator.spec, EpochSinkSpec) for operator in graph.sinks)
        and not any(conf.get(name, "false") == "true" for name in (*_PLAINTEXT, "spark.speculation"))
    )


def _slots(sc: SparkContext) -> int:
    """The number of tasks that the present executors can run at a time."""
    context = sc._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def _accept(server: socket.socket, key: bytes, found: dict[tuple[int, bool], Connection]) -> None:
    """Take the next connection, of a task that none is known of."""
    if not wait([server], 0.1):
        return
    sock, _ = server.accept()
    with suppress(OSError, EOFError, AuthenticationError, struct.error):
        connection = connected(sock, key, accepted=True)
        name = HELLO.unpack(connection.recv_bytes(HELLO.size))
        if name in found:
            connection.close()
        else:
            found[name] = connection


def _hold(of: Residents, stage: ResidentStage, group: str, over: threading.Event) -> None:
    """Run the Spark job of resident tasks until they end."""
    try:
        jvm, sc = jvm_of(of.sc), of.sc
        hosts = place(of.parallelism, executor_cores(sc)) if has_several_hosts(sc.master) else ()
        items = [b""] * of.parallelism
        rdd = jvm.located(items, hosts) if hosts else jvm.parallel_bytes(items, of.parallelism)
        with of.job({**of.properties, "spark.jobGroup.id": group}):
            jvm.collect_bytes(jvm.python(rdd, _wrap_function(sc, stage, BlobSerializer(), BlobSerializer())))
    except Exception as error:  # whoever asks a task finds out
        log.debug("the job of resident tasks has failed: %s", error)
    finally:
        over.set()
