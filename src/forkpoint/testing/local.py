"""Runs a whole job in this process, without Spark, from scripted inputs to collected output."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory
from typing import Any

from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.api.streams.streams import DataStream
from forkpoint.driver.observe.events import Outcome, Steps
from forkpoint.driver.run.assembly import Run
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.driver.run.planner import discard_sources
from forkpoint.driver.run.requests import RescaleRequest
from forkpoint.driver.run.stop import Result
from forkpoint.errors import ConfigError, GraphError
from forkpoint.graph.compile import compile_graph
from forkpoint.graph.job import JobGraph
from forkpoint.graph.options import JobOptions, RestartStrategy, RestoreOptions
from forkpoint.graph.specs import SinkSpec
from forkpoint.local.executor import LocalExecutor
from forkpoint.storage.base import open_storage
from forkpoint.testing.clock import ManualClock
from forkpoint.testing.sink import Record, TestSink
from forkpoint.testing.source import ProcessDied, TestSource

Named = DataStream | Mapping[str, DataStream] | Sequence[DataStream] | None
Build = Callable[..., Named]

_OUTPUT = "output:"  # prefix of the uids of returned streams' sinks


@dataclass(frozen=True)
class LocalRun:
    """The result of a run. ``records``: the elements of each sink, by the sink's uid (or the stream's name), in the order of
    epoch, subtask and stream.

    ``epochs``: the number of committed epochs. ``deaths``: how often ABORT ended the process. ``restarts``: how often the
    restart strategy restarted the job. ``savepoint``: the path of the savepoint that stopped the run.
    ``late_records_dropped``: the number of late elements dropped since the last restart, by operator uid.
    """

    records: Mapping[str, list[Record]]
    outcome: Outcome
    epochs: int
    deaths: int
    restarts: int
    watermarks: Mapping[str, int]
    savepoint: str | None = None
    late_records_dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def outputs(self) -> dict[str, list[Any]]:
        """The elements without timestamps, by name."""
        return {name: [record.value for record in records] for name, records in self.records.items()}

    @property
    def output(self) -> list[Any]:
        """The elements of the only output. GraphError if there are several outputs."""
        if len(self.records) != 1:
            raise GraphError(f"the job has the outputs {sorted(self.records)}; get one by name from .outputs")
        return next(iter(self.outputs.values()))

    def by_key(self, key: Callable[[Any], Any], name: str | None = None) -> dict[Any, list[Any]]:
        """The elements of an output by key; their order per key is the same at any parallelism."""
        found: dict[Any, list[Any]] = {}
        for value in self.output if name is None else self.outputs[name]:
            found.setdefault(key(value), []).append(value)
        return found


def run_local(
    build: Build | StreamExecutionEnvironment,
    *inputs: Sequence[Any] | TestSource,
    parallelism: int | None = None,
    max_parallelism: int | None = None,
    epochs: int | Sequence[int] | None = None,
    clock: ManualClock | None = None,
    state_root: str | os.PathLike[str] | None = None,
    restore: str | RestoreOptions | None = None,
    job_name: str = "test",
    options: Mapping[str, Any] | None = None,
) -> LocalRun:
    """Run a job to its end in this process and return the output of its sinks.

    ``build(env, *sources)`` defines the job in an environment; it receives each input as a TestSource (also a list). It may
    return a stream (the output "output"), several streams by name or in a list ("0", "1", …), or nothing; TestSinks in the job
    are outputs too, named by their uid. You may pass a complete environment instead.

    ``epochs``: the maximum number of rows per epoch and source, or cut points: numbers of elements of each split after which an
    epoch ends. ``clock``: processing time, which advances only at ``Advance`` in the inputs. ``state_root``: keep checkpoints
    and savepoints there, so that a later run can resume this run; then every source, sink and stateful operator needs a uid.
    ``restore``: a savepoint's path, "latest", or RestoreOptions. ``options``: fields of JobOptions. A failing function ends the
    run with its error unless a restart strategy is set. If the inputs stop the run with a savepoint and the savepoint fails, the
    job continues, and ``run_local`` raises the error at its end.
    """
    env = build if isinstance(build, StreamExecutionEnvironment) else StreamExecutionEnvironment(JobOptions())
    sources = [i if isinstance(i, TestSource) else TestSource(i) for i in inputs]
    if not isinstance(build, StreamExecutionEnvironment):
        _add_sinks(build(env, *sources))
    elif sources:
        raise ConfigError("run_local(env, inputs): inputs need a function that builds the job; pass one, or no inputs")
    given = _options(env.options, parallelism, max_parallelism, epochs, options or {})
    graph = compile_graph(
        env.transformations,
        max_parallelism=given.max_parallelism,
        require_uids=state_root is not None,
        mode=given.runtime_mode,
        over_columns=given.over_columns,
    ).graph
    script = _Script([o.source for o in graph.native_sources if isinstance(o.source, TestSource)])
    clock = clock or ManualClock()
    for source in script.sources:
        source.clock = clock
        if epochs is not None and not isinstance(epochs, int):
            source.cut(epochs)
    start = restore if isinstance(restore, RestoreOptions) else RestoreOptions(savepoint=restore)
    root = f"memory://{uuid.uuid4().hex}" if state_root is None else os.fspath(state_root)
    try:
        return _run(job_name, graph, given, root, clock, script, start)
    finally:
        if state_root is None:
            open_storage(root).delete_prefix("jobs")
            if script.last is not None:
                discard_sources(script.last.graph)


def _options(
    base: JobOptions,
    parallelism: int | None,
    max_parallelism: int | None,
    epochs: int | Sequence[int] | None,
    more: Mapping[str, Any],
) -> JobOptions:
    """The job's options, overridden by the test's. Epochs do not wait for an interval, and by default failures end the run."""
    options = replace(
        base,
        engine="local",
        state_backend="dict",
        parallelism=parallelism or base.parallelism or 2,
        max_parallelism=max_parallelism or base.max_parallelism,
        restart=base.restart or RestartStrategy.none(),
        checkpoint=replace(base.checkpoint, interval_ms=None, min_pause_ms=0),
        max_epoch_rows=epochs if isinstance(epochs, int) else base.max_epoch_rows,
    )
    return replace(options, **more)


def _add_sinks(named: Named) -> None:
    match named:
        case None:
            streams: Mapping[str, DataStream] = {}
        case DataStream():
            streams = {"output": named}
        case Mapping():
            streams = named
        case _:
            streams = {str(i): stream for i, stream in enumerate(named)}
    for name, stream in streams.items():
        stream.sink_to(TestSink()).uid(_OUTPUT + name)


class _Script(Steps):
    """Executes the inputs' sentinels: kills the process, stops the run, rescales the job."""

    def __init__(self, sources: list[TestSource]) -> None:
        self.sources = sources
        self.driver: JobDriver | None = None
        self.last: JobDriver | None = None
        self.committed = 0
        self.savepoint: Future[str] | None = None  # stops the run
        self.rescaling: RescaleRequest | None = None

    def on_step(self, step: str, epoch: int) -> None:
        self.committed += step == "committed"
        for source in self.sources:
            source.on_step(step)
        if step == "planned" and self.rescaling is not None:
            self._await_stores(self.rescaling)
        wanted = [source.rescale for source in self.sources if source.rescale is not None]
        if step == "published" and wanted and self.driver is not None:
            self.rescaling = self.driver.rescale(wanted[0].parallelism)
        stops = [source.stop for source in self.sources if source.stop is not None]
        if step == "published" and stops and self.driver is not None:
            if any(stop.savepoint for stop in stops):
                self.savepoint = self.driver.savepoint(stop=True, drain=any(stop.drain for stop in stops)).done
            else:
                self.driver.cancel()
            for source in self.sources:
                source.stop = None

    def _await_stores(self, request: RescaleRequest) -> None:
        """Wait until the stores are prepared, so that the job rescales right after the next epoch."""
        while not request.done.done() and not request.prepared.wait(0.01):
            pass
        self.rescaling = None
        if request.done.done():
            request.done.result()

    def run(self, driver: JobDriver) -> Result | None:
        """Run until the job ends; None if the process dies."""
        self.driver, self.last, self.savepoint, self.rescaling = driver, driver, None, None
        try:
            return driver.run()
        except ProcessDied:
            return None
        finally:
            self.driver = None


def _run(
    name: str, graph: JobGraph, options: JobOptions, root: str, clock: ManualClock, script: _Script, restore: RestoreOptions
) -> LocalRun:
    """Run the job, and restart it after each ABORT."""
    deaths = restarts = 0
    sinks = {o.uid: o.spec.sink for o in graph.sinks if isinstance(o.spec, SinkSpec) and isinstance(o.spec.sink, TestSink)}
    while True:
        with TemporaryDirectory(prefix="forkpoint-test-", ignore_cleanup_errors=True) as local_dir:
            run = Run(name, graph, options, options.parallelism or 2, local_dir, restore=restore)
            driver = JobDriver(run, open_storage(root), LocalExecutor(), now_ms=clock, steps=script)
            result = script.run(driver)
        status = driver.status()
        restarts += status.restarts
        if result is None:
            deaths += 1
            restore = RestoreOptions()
            continue
        if script.savepoint is not None and (error := script.savepoint.exception()) is not None:
            raise error
        return LocalRun(
            {uid.removeprefix(_OUTPUT): list(sink.records) for uid, sink in sinks.items()},
            result.outcome,
            script.committed,
            deaths,
            restarts,
            status.watermarks,
            result.savepoint,
            status.late_records_dropped,
        )
