"""From a program to a running job: compile it, choose the engine, restore, drive."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forkpoint.api.batch_frames import stage_batch_frames
from forkpoint.api.interrupting import ctrl_c_cancels, interrupted
from forkpoint.api.results import JobClient, JobExecutionResult, JobStatus
from forkpoint.checkpoint.paths import AREAS
from forkpoint.connectors import CollectSink, Sink
from forkpoint.driver.events import Listener, Steps
from forkpoint.driver.executor import Executor
from forkpoint.driver.job_driver import JobDriver, Result
from forkpoint.driver.replay import Until
from forkpoint.driver.restorer import RestoreOptions, restorer
from forkpoint.driver.trial import Trial
from forkpoint.errors import ConfigError, JobFailed
from forkpoint.graph.compile import compile_graph
from forkpoint.graph.job import JobGraph
from forkpoint.graph.options import JobOptions
from forkpoint.graph.specs import EpochSinkSpec, SinkSpec
from forkpoint.graph.transformations import Transformation
from forkpoint.storage.base import LocalStorage, open_storage
from forkpoint.storage.private import close_to_others

if TYPE_CHECKING:
    from forkpoint.api.environment import StreamExecutionEnvironment
    from forkpoint.api.streams import DataStream

UNNAMED = "forkpoint-job"
LOCAL_PARALLELISM = 2


@dataclass(frozen=True)
class Launch:
    """What the surroundings of a program say about how it is run; the command line sets it.

    ``options`` are laid over the program's own; ``state_root`` counts where the program sets none. ``job_name`` renames the
    job (a fork). ``on_driver`` is called with the driver before the run begins, and gives back what to call at its end, with
    the result or the error; ``on_step`` is told in words what the start has come to. With ``inspect`` nothing is run: it is
    called with the compiled job, and the program ends there by ProgramStopped. ``until``: where the run stops by itself.
    ``trial``: how many epochs show that it works. ``sinks`` puts other sinks, by uid, in the place of the program's.
    ``steps`` and ``listeners`` are told what happens in the run (see ``driver.events``).
    ``generated_uids``: operators may do without a uid, also where their state outlives the run. ``unnamed`` counts the jobs
    that the program gives no name, so that each has its own.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    state_root: str | None = None
    job_name: str | None = None
    restore: RestoreOptions = field(default_factory=RestoreOptions)
    on_driver: Callable[[JobDriver], Callable[[Result | BaseException], None]] | None = None
    on_step: Callable[[str], None] | None = None
    steps: Steps | None = None
    listeners: Sequence[Listener] = ()
    inspect: Callable[[Inspected], None] | None = None
    until: Until | None = None
    trial: Trial | None = None
    sinks: Callable[[str], Sink] | None = None
    generated_uids: bool = False
    unnamed: Iterator[int] = field(default_factory=lambda: itertools.count(1), compare=False)


@dataclass(frozen=True)
class Inspected:
    """A program's job as it would have been run."""

    name: str
    graph: JobGraph
    options: JobOptions


class ProgramStopped(BaseException):  # no Exception, so that no program takes it for a failure of its own
    """Ends a program where it would have run its job."""


_launch: ContextVar[Launch | None] = ContextVar("forkpoint_launch", default=None)


@contextmanager
def launching(launch: Launch) -> Iterator[None]:
    """Programs that call ``execute()`` in here run as ``launch`` says."""
    token = _launch.set(launch)
    try:
        yield
    finally:
        _launch.reset(token)


@dataclass
class Job:
    """A compiled program with everything it runs with."""

    name: str
    graph: JobGraph
    options: JobOptions
    launch: Launch
    temporary: str | None
    driver: JobDriver

    def begin(self) -> Callable[[], Result]:
        """Tell the surroundings of the job; the answer is to be called once, and runs it to its end."""
        ended = self.launch.on_driver(self.driver) if self.launch.on_driver is not None else None
        return lambda: self._run(ended)

    def _run(self, ended: Callable[[Result | BaseException], None] | None) -> Result:
        outcome: Result | BaseException | None = None
        try:
            outcome = result = self.driver.run(restorer(self.driver, self.launch.restore))
            return result
        except BaseException as error:
            outcome = error
            raise
        finally:
            if ended is not None and outcome is not None:
                ended(outcome)
            if self.temporary is not None:
                shutil.rmtree(self.temporary, ignore_errors=True)


def prepare(env: StreamExecutionEnvironment, name: str | None, ends: Iterable[Transformation]) -> Job:
    """Compile the job and make its driver; nothing has run yet."""
    launch = _launch.get() or Launch()
    options = replace(env.options, **launch.options)
    root = options.state_root or launch.state_root or os.environ.get("FORKPOINT_STATE_ROOT") or None
    ends = tuple(ends)
    number = next(launch.unnamed) if name is None else 1
    name = (launch.job_name or name or UNNAMED) + (f"-{number}" if number > 1 else "")
    if launch.inspect is not None:
        graph = compile_graph(
            ends,
            max_parallelism=options.max_parallelism,
            require_uids=not launch.generated_uids,
            mode=options.runtime_mode,
        ).graph
        launch.inspect(Inspected(name, graph, options))
        raise ProgramStopped
    temporary = None
    if root is None:
        temporary = tempfile.mkdtemp(prefix="forkpoint-")
    storage = open_storage(root or temporary or "")
    if isinstance(storage, LocalStorage):
        storage.close_to_others(AREAS)  # older releases left that to the umask
    stage_batch_frames(ends, storage, name)
    required = root is not None and not launch.generated_uids
    compiled = compile_graph(
        ends, max_parallelism=options.max_parallelism, require_uids=required, mode=options.runtime_mode
    )
    if compiled.generated_uids:
        why = (
            "no state root is set: state lives as long as this process, and operators without a uid get a generated one"
            if root is None
            else "operators without a uid get a generated one, by which their state is not found again once the program changes"
        )
        warnings.warn(f"{why} ({', '.join(compiled.generated_uids)})", stacklevel=4)
    graph = compiled.graph if launch.sinks is None else _redirected(compiled.graph, launch.sinks)
    if launch.on_step is not None and engine_of(options) == "spark":
        launch.on_step("starting Spark")
    executor, parallelism = make_executor(options)
    parallelism = options.parallelism or parallelism
    others = {uid: n for uid, n in compiled.parallelisms.items() if n != parallelism}
    if others:
        named = ", ".join(f"{uid!r} ({n})" for uid, n in others.items())
        warnings.warn(
            f"set_parallelism() of single operators has no effect: {named} run with {parallelism} subtasks "
            "as all others do; set the job's with env.set_parallelism()",
            stacklevel=4,
        )
    driver = JobDriver(
        name, graph, options, storage, executor, parallelism=parallelism,
        local_dir=str(stores_directory()), steps=launch.steps, listeners=launch.listeners, until=launch.until,
        trial=launch.trial,
    )  # fmt: skip
    return Job(name, graph, options, launch, temporary, driver)


def _redirected(graph: JobGraph, sinks: Callable[[str], Sink]) -> JobGraph:
    """The graph with other sinks, by uid."""
    return graph.with_specs(
        lambda o: SinkSpec(sinks(o.uid)) if isinstance(o.spec, SinkSpec | EpochSinkSpec) else o.spec
    )


def stores_directory() -> Path:
    """A new directory for this process's local stores; those of processes that were killed are removed."""
    home = Path(tempfile.gettempdir()) / f"forkpoint-stores-{os.getuid()}"
    close_to_others(str(home))
    for left in home.glob("*-*") if home.is_dir() and home.stat().st_uid == os.getuid() else ():
        pid = left.name.split("-")[0]
        if pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)
    return home / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def engine_of(options: JobOptions) -> str:
    """The engine's name, as it was given or from the environment."""
    return options.engine or os.environ.get("FORKPOINT_ENGINE") or "spark"


def make_executor(options: JobOptions) -> tuple[Executor, int]:
    """The engine's executor, and the parallelism that it would choose."""
    engine = engine_of(options)
    if engine == "local":
        from forkpoint.local.executor import LocalExecutor

        return LocalExecutor(), LOCAL_PARALLELISM
    if engine == "spark":
        from forkpoint.spark.engine import make_spark_executor

        return make_spark_executor(options.checkpoint.interval_ms)
    raise ConfigError(f"FORKPOINT_ENGINE is {engine!r}; it must be 'spark' or 'local'")


def execute(env: StreamExecutionEnvironment, name: str | None) -> JobExecutionResult:
    try:
        job = prepare(env, name, env.transformations)
        began = time.monotonic()
        run = job.begin()
    except KeyboardInterrupt as error:
        named = "a job without a name" if name is None else f"job {name!r}"
        raise interrupted(f"{named}: interrupted before it began") from error
    with ctrl_c_cancels(job.driver):
        result = run()
    return _result(job, result, began)


def _result(job: Job, result: Result, began: float) -> JobExecutionResult:
    status = JobStatus.CANCELED if result.outcome == "cancelled" else JobStatus.FINISHED
    runtime = timedelta(seconds=time.monotonic() - began)
    return JobExecutionResult(result.run, job.name, status, runtime, result.savepoint)


def execute_async(env: StreamExecutionEnvironment, name: str | None) -> JobClient:
    return RunningJob(prepare(env, name, env.transformations))


class RunningJob(JobClient):
    """A job on a thread of this process."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._began = time.monotonic()
        self._result: Future[JobExecutionResult] = Future()
        run = job.begin()
        self._thread = threading.Thread(target=self._run, args=(run,), name=f"forkpoint-{job.name}", daemon=True)
        self._thread.start()

    def _run(self, run: Callable[[], Result]) -> None:
        try:
            self._result.set_result(_result(self.job, run(), self._began))
        except BaseException as error:
            self._result.set_exception(error)

    def get_job_id(self) -> str:
        return self.job.driver.run_id

    def get_job_status(self) -> Future[JobStatus]:
        status: Future[JobStatus] = Future()
        state = self.job.driver.status().state
        if self._result.done():
            failed = self._result.exception() is not None
            status.set_result(JobStatus.FAILED if failed else self._result.result().status)
        else:
            names = {"starting": JobStatus.INITIALIZING, "restarting": JobStatus.RESTARTING}
            status.set_result(names.get(state, JobStatus.RUNNING))
        return status

    def cancel(self) -> Future[None]:
        self.job.driver.cancel()
        done: Future[None] = Future()
        self._result.add_done_callback(lambda _: done.set_result(None))
        return done

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool = False, savepoint_directory: str | None = None
    ) -> Future[str]:
        return self.job.driver.savepoint(savepoint_directory, stop=True, drain=advance_to_end_of_event_time).done

    def trigger_savepoint(self, savepoint_directory: str | None = None, label: str | None = None) -> Future[str]:
        return self.job.driver.savepoint(savepoint_directory, label).done

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        return self._result


def collect(stream: DataStream, limit: int | None, name: str | None) -> Iterator[Any]:
    """Run the job and yield the stream's elements as their epochs are committed."""
    sink = CollectSink()
    env = stream.get_execution_environment()
    stream.sink_to(sink).uid(f"collect-{uuid.uuid4().hex[:8]}")
    job = prepare(env, name, env.transformations)
    return _collected(job, sink)


def _collected(job: Job, sink: CollectSink) -> Iterator[Any]:
    running = RunningJob(job)
    result = running.get_job_execution_result()
    try:
        while True:
            done = result.done()
            yield from sink.take()
            if done:
                result.result()
                return
            time.sleep(0.005)
    finally:
        if not result.done():
            running.cancel()
            with suppress(JobFailed):
                result.result()
