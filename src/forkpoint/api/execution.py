"""Compile, check and run the job of an environment."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forkpoint.api.dataframes import stage_batch_frames
from forkpoint.api.interrupts import JobInterrupted, ctrl_c_cancels, interrupted, show_briefly
from forkpoint.api.launch import Inspected, Launch, ProgramStopped
from forkpoint.api.results import CheckResult, JobClient, JobExecutionResult, JobStatus
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.checkpoint.paths import AREAS, JobPaths
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.config_file import state_root
from forkpoint.connectors.sinks import CollectSink
from forkpoint.driver.run.assembly import Run
from forkpoint.driver.run.executor import Executor
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.driver.run.planner import discard_sources
from forkpoint.driver.run.stop import Result
from forkpoint.driver.start.program_check import check_program
from forkpoint.errors import ConfigError, ForkpointError, JobFailed, SavepointCorrupt, SavepointNotFound, StorageError
from forkpoint.extras import is_installed
from forkpoint.graph.compile import Compiled, compile_graph
from forkpoint.graph.job import JobGraph
from forkpoint.graph.options import ARCHIVES, JobOptions, Predecessor, RestoreOptions
from forkpoint.graph.specs import EpochSinkSpec, SinkSpec
from forkpoint.protocol.endpoint import process_exists
from forkpoint.savepoint.catalog.listing import LATEST, find_savepoint
from forkpoint.savepoint.catalog.names import named_savepoint
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from forkpoint.storage.base import LocalStorage, Storage, open_storage
from forkpoint.storage.places import absolute, plain_place
from forkpoint.storage.private import close_to_others
from forkpoint.types.lookup import Program, values_of

if TYPE_CHECKING:
    from forkpoint.api.environment import StreamExecutionEnvironment
    from forkpoint.api.streams.streams import DataStream
    from forkpoint.driver.serve.telemetry import Telemetry

UNNAMED = "forkpoint-job"
LOCAL_PARALLELISM = 2
_OTLP = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@dataclass
class Job:
    """A compiled job with its driver."""

    name: str
    graph: JobGraph
    options: JobOptions
    launch: Launch
    temporary: str | None
    driver: JobDriver
    telemetry: Telemetry | None = None
    began: float = field(default_factory=time.monotonic)

    def begin(self) -> Callable[[], Result]:
        """Announce the job to its launcher, and return a function that runs the job to its end; call it once."""
        ended: Callable[[Result | BaseException], None] | None = None
        if self.launch.on_driver is not None:
            ended = self.launch.on_driver(self.driver)
        elif self.temporary is None:
            from forkpoint.driver.serve.endpoint_publisher import attend  # not needed for `import forkpoint`

            ended = attend(self.driver, _spark_settings(self.options))
        return lambda: self._run(ended)

    def _run(self, ended: Callable[[Result | BaseException], None] | None) -> Result:
        outcome: Result | BaseException | None = None
        try:
            outcome = result = self.driver.run() if self.launch.work is None else self.launch.work(self.driver)
            return result
        except BaseException as error:
            outcome = error
            raise
        finally:
            if ended is not None and outcome is not None:
                ended(outcome)
            if self.telemetry is not None:
                self.telemetry.close()
            if self.temporary is not None:
                shutil.rmtree(self.temporary, ignore_errors=True)
                discard_sources(self.driver.graph)

    def result(self, of: Result) -> JobExecutionResult:
        """The result of a run for the program."""
        status = JobStatus.CANCELED if of.outcome == "cancelled" else JobStatus.FINISHED
        runtime = timedelta(seconds=time.monotonic() - self.began)
        return JobExecutionResult(of.run, self.name, status, runtime, of.savepoint)


def inspect(env: StreamExecutionEnvironment, name: str | None) -> Inspected:
    """Compile the environment's job without starting or writing anything."""
    launch, options = env.launch, _options(env)
    graph = _compile(env, options, require_uids=not launch.generated_uids).graph
    return Inspected(_job_name(launch, name), graph, options, _state_root(launch, options))


def check(
    job: Inspected,
    savepoint: str,
    *,
    allow_non_restored: bool = False,
    renames: Mapping[str, str] | None = None,
    accept_empty: Collection[str] = (),
) -> CheckResult:
    """Compare a job with a savepoint; see ``StreamExecutionEnvironment.check``."""
    if job.state_root is None and savepoint == LATEST:
        raise ConfigError("no state root is set, so there is no latest savepoint; set one, or give a savepoint's path")
    path, saved = _saved(job, savepoint)
    with values_of(Program(allow_pickle=job.options.allow_pickle)):
        plan = check_program(job.graph, saved, allow_non_restored=allow_non_restored, renames=renames, accept_empty=accept_empty)
    return CheckResult(job.name, path, saved if isinstance(saved, Savepoint) else None, plan, saved.epoch, saved.job)


def _saved(job: Inspected, savepoint: str) -> tuple[str, Savepoint | Manifest]:
    """The location and manifest of saved state: a savepoint, else the newest checkpoint of the job with that name."""
    storage = None if job.state_root is None else open_storage(job.state_root)
    try:
        if storage is None:
            opened = open_savepoint(absolute(savepoint))
        elif savepoint == LATEST:
            opened = find_savepoint(storage, job.name)
        else:
            opened = named_savepoint(storage, savepoint)
    except SavepointNotFound:
        name = job.name if savepoint == LATEST else savepoint
        newest = None if storage is None else _newest_checkpoint(storage, name)
        if storage is None or newest is None:
            raise
        return f"{plain_place(storage.url).rstrip('/')}/{JobPaths(name).manifest(newest.epoch)}", newest
    return plain_place(opened.url), opened.savepoint


def _newest_checkpoint(storage: Storage, job: str) -> Manifest | None:
    """None without a checkpoint, and for an invalid job name."""
    try:
        return History(storage, JobPaths(job)).newest()
    except ConfigError:
        return None


def prepare(env: StreamExecutionEnvironment, name: str | None, restore: RestoreOptions | None = None) -> Job:
    """Compile the environment's job and create its driver, without running it."""
    launch = env.launch
    if launch.inspect is not None:
        launch.inspect(inspect(env, name))
        raise ProgramStopped
    options = _options(env)
    root, name = _state_root(launch, options), _job_name(launch, name)
    temporary = tempfile.mkdtemp(prefix="forkpoint-") if root is None else None
    storage = open_storage(root or temporary or "")
    if isinstance(storage, LocalStorage):
        storage.close_to_others(AREAS)  # older releases left the permissions to the umask
    stage_batch_frames(env.transformations, storage, name)
    compiled = _compile(env, options, require_uids=root is not None and not launch.generated_uids)
    if compiled.generated_uids:
        why = (
            "no state root is set: state lives as long as this process, and operators without a uid get a generated one"
            if root is None
            else "operators without a uid get a generated one, and lose their state when the program changes"
        )
        warnings.warn(f"{why} ({', '.join(compiled.generated_uids)})", stacklevel=4)
    graph, sinks = compiled.graph, launch.sinks
    if sinks is not None:
        graph = graph.with_specs(lambda o: SinkSpec(sinks(o.uid)) if isinstance(o.spec, SinkSpec | EpochSinkSpec) else o.spec)
    predecessor = _predecessor(launch, storage, name)  # before the engine starts, which takes long
    executor, parallelism = make_executor(options, launch.on_step or (lambda step: None))
    parallelism = options.parallelism or parallelism
    if options.autoscale is not None:
        parallelism = options.autoscale.clamp(parallelism)
    others = {uid: n for uid, n in compiled.parallelisms.items() if n != parallelism}
    if others:
        operators = ", ".join(f"{uid!r} ({n})" for uid, n in others.items())
        warnings.warn(
            f"set_parallelism() on single operators has no effect: {operators} run with {parallelism} subtasks like all others; "
            "set the job's parallelism with env.set_parallelism()",
            stacklevel=4,
        )
    telemetry = _telemetry(name)
    listeners = launch.listeners if telemetry is None else [*launch.listeners, telemetry]
    run = Run(
        name,
        graph,
        options,
        parallelism,
        str(stores_directory()),
        restore=launch.restore or restore or RestoreOptions(),
        until=launch.until,
        trial=launch.trial,
        standby=launch.standby,
        succeeds=launch.succeeds,
        lease=temporary is None,
        pinned=launch.pinned,
        predecessor=predecessor,
    )
    driver = JobDriver(run, storage, executor, steps=launch.steps, listeners=listeners)
    if telemetry is not None:
        telemetry.attach(driver)
    return Job(name, graph, options, launch, temporary, driver, telemetry)


def _predecessor(launch: Launch, storage: Storage, job: str) -> Predecessor | None:
    """The run that this start succeeds; None if the history cannot be read, which the start itself reports."""
    try:
        run = launch.predecessors[job] if job in launch.predecessors else History(storage, JobPaths(job)).newest_run()
    except (StorageError, SavepointCorrupt):
        return None
    return Predecessor(run, launch.force)


def _telemetry(job: str) -> Telemetry | None:
    """The exporter of metrics and traces, if OpenTelemetry's environment variables enable it and it is installed."""
    enabled = any(os.environ.get(name) for name in _OTLP) and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true"
    if not enabled or not is_installed("opentelemetry.sdk"):
        return None
    from forkpoint.driver.serve.telemetry import Telemetry  # not needed for `import forkpoint`

    return Telemetry(job)


def _compile(env: StreamExecutionEnvironment, options: JobOptions, *, require_uids: bool) -> Compiled:
    ends, max_parallelism, mode = env.transformations, options.max_parallelism, options.runtime_mode
    return compile_graph(
        ends, max_parallelism=max_parallelism, require_uids=require_uids, mode=mode, over_columns=options.over_columns
    )


def _options(env: StreamExecutionEnvironment) -> JobOptions:
    given = env.launch.options
    return replace(env.options, **{**given, "spark": {**env.options.spark, **given.get("spark", {})}})


def _state_root(launch: Launch, options: JobOptions) -> str | None:
    return options.state_root or launch.state_root or state_root()


def _job_name(launch: Launch, name: str | None) -> str:
    number = next(launch.unnamed) if name is None else 1
    return (launch.job_name or name or UNNAMED) + (f"-{number}" if number > 1 else "")


def stores_directory() -> Path:
    """A new directory for this process's local stores. Removes directories of killed processes."""
    home = Path(tempfile.gettempdir()) / f"forkpoint-stores-{os.getuid()}"
    close_to_others(str(home))
    for directory in home.glob("*-*") if home.is_dir() and home.stat().st_uid == os.getuid() else ():
        pid = directory.name.split("-")[0]
        if pid.isdigit() and not process_exists(int(pid)):
            shutil.rmtree(directory, ignore_errors=True)
    return home / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"


def engine_of(options: JobOptions) -> str:
    """The engine's name, from the options or the environment variable."""
    return options.engine or os.environ.get("FORKPOINT_ENGINE") or "spark"


def make_executor(options: JobOptions, on_step: Callable[[str], None]) -> tuple[Executor, int]:
    """The engine's executor and default parallelism. ``on_step`` receives the steps of its start."""
    engine = engine_of(options)
    if engine == "local":
        from forkpoint.local.executor import LocalExecutor

        return LocalExecutor(options.spark.get(ARCHIVES, "")), LOCAL_PARALLELISM
    if engine == "spark":
        from forkpoint.spark.executor import make_spark_executor
        from forkpoint.spark.shipping.provisions import Provisions

        on_step("starting Spark")
        provisions = Provisions(options.ship_env, options.pass_env, on_step)
        return make_spark_executor(options.checkpoint.interval_ms, options.spark, provisions)
    raise ConfigError(f"FORKPOINT_ENGINE is {engine!r}; it must be 'spark' or 'local'")


def _spark_settings(options: JobOptions) -> Mapping[str, str] | None:
    """The settings that Spark was started with; None if this process cannot start it with them."""
    if engine_of(options) != "spark":
        return {}
    from forkpoint.spark.shipping.provisions import submitted_settings

    return submitted_settings()


def execute(env: StreamExecutionEnvironment, name: str | None, restore: RestoreOptions | None = None) -> JobExecutionResult:
    try:
        job = prepare(env, name, restore)
        run = job.begin()
        with ctrl_c_cancels(job.driver):
            result = run()
    except ForkpointError:
        show_briefly()
        raise
    except KeyboardInterrupt as error:
        if isinstance(error, JobInterrupted):
            raise
        label = "unnamed job" if name is None else f"job {name!r}"
        raise interrupted(f"{label}: interrupted before it started") from error
    return job.result(result)


def execute_async(env: StreamExecutionEnvironment, name: str | None, restore: RestoreOptions | None = None) -> JobClient:
    return JobClient(prepare(env, name, restore))


def collect(stream: DataStream, limit: int | None, name: str | None) -> Iterator[Any]:
    """Run the job and yield the stream's elements as their epochs are committed."""
    sink = CollectSink()
    env = stream.get_execution_environment()
    stream.sink_to(sink).uid(f"collect-{uuid.uuid4().hex[:8]}")
    job = prepare(env, name)
    return _collected(job, sink)


def _collected(job: Job, sink: CollectSink) -> Iterator[Any]:
    running = JobClient(job)
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
