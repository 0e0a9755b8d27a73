"""Assembles a run: its request and its collaborators."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.contract.source import SourceContext
from forkpoint.driver.commit.garbage import GarbageCollection
from forkpoint.driver.commit.publisher import Publisher
from forkpoint.driver.commit.trial import Trial
from forkpoint.driver.lead.handing_over import HandOver
from forkpoint.driver.lead.lease import LeaseKeeper
from forkpoint.driver.lead.succession import Succession
from forkpoint.driver.observe.events import Listener, Listeners, RestoreProgressed, StepListener, Steps
from forkpoint.driver.observe.journal import JournalListener
from forkpoint.driver.observe.metrics import MetricsListener
from forkpoint.driver.observe.status import StatusListener
from forkpoint.driver.run.executor import Executor
from forkpoint.driver.run.failures import FailureRecord
from forkpoint.driver.run.requests import Inbox
from forkpoint.driver.savepoints.background import Savepoints
from forkpoint.driver.savepoints.earlier import Earlier
from forkpoint.driver.savepoints.schedule import Schedule
from forkpoint.driver.scale.autoscaling import Autoscaler
from forkpoint.driver.scale.layouts import Layouts
from forkpoint.driver.scale.rescaling import Rescaling
from forkpoint.driver.start.records import RunRecords, plan_of
from forkpoint.driver.start.replay import Until
from forkpoint.driver.start.restorer import Restorer, StartParallelism
from forkpoint.driver.start.starter import Starter
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.graph.options import JobOptions, Predecessor, RestoreOptions
from forkpoint.graph.specs import OperatorSpec, SinkSpec, SourceSpec
from forkpoint.storage.base import Storage


@dataclass(frozen=True)
class Run:
    """A requested run.

    ``restore``: its initial state. ``until``: the end of a replay. ``trial``: how long to withhold its output. ``standby``: wait
    until the job's leader dies. ``succeeds``: the run that hands the job over to it. ``lease``: whether to keep a lease.
    ``pinned``: start at this parallelism even if the job was rescaled. ``predecessor``: the run that it succeeds unless it is a
    standby; None: the newest run.
    """

    job: str
    graph: JobGraph
    options: JobOptions
    parallelism: int
    local_dir: str
    restore: RestoreOptions = field(default_factory=RestoreOptions)
    until: Until | None = None
    trial: Trial | None = None
    standby: bool = False
    succeeds: str | None = None
    lease: bool = False
    pinned: bool = False
    predecessor: Predecessor | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


@dataclass(frozen=True)
class Parts:
    """A run's collaborators. ``graph``: with sources and sinks bound to this job."""

    storage: Storage
    graph: JobGraph
    history: History
    inbox: Inbox
    status: StatusListener
    journal: JournalListener
    metrics: MetricsListener
    listener: Listeners
    records: RunRecords
    failures: FailureRecord
    layouts: Layouts
    rescaling: Rescaling
    autoscaler: Autoscaler | None
    savepoints: Savepoints
    schedule: Schedule | None
    garbage: GarbageCollection
    lease: LeaseKeeper
    publisher: Publisher
    starter: Starter
    handing_over: HandOver
    succession: Succession


def assemble(
    run: Run,
    storage: Storage,
    executor: Executor,
    now_ms: Callable[[], int],
    steps: Steps | None,
    listeners: Sequence[Listener],
    abandoned: Callable[[], bool],
) -> Parts:
    """``abandoned``: whether the hand-off that the run waits for was given up."""
    job, options, began_ms = run.job, run.options, now_ms()
    graph = run.graph.with_specs(lambda operator: _for_job(operator, job, storage.url))
    history, inbox = History(storage, JobPaths(job)), Inbox()

    status, journal, metrics = StatusListener(job, run.id, began_ms), JournalListener(now_ms), MetricsListener()
    autoscaler = None if options.autoscale is None else Autoscaler(options.autoscale)
    observers = (autoscaler, None if steps is None else StepListener(steps))
    listener = Listeners([status, journal, metrics, *listeners, *(o for o in observers if o is not None)])

    records = RunRecords(storage, history.paths, options, plan_of(graph), began_ms)
    lease = LeaseKeeper(storage, history.paths, run.id, lambda: status.status.epoch)
    publisher = Publisher(graph, executor, history, listener, inbox.wake, now_ms)
    layouts = Layouts(run.id, job, graph, options, storage.url, run.local_dir)
    restorer = Restorer(
        run.restore,
        history,
        graph,
        StartParallelism(run.parallelism, run.pinned, options.autoscale),
        executor,
        records.ended_well,
        lambda done, total: listener.on_event(RestoreProgressed(done, total)),
        now_ms,
    )
    starter = Starter(run.id, restorer, records, publisher, lease.start if run.lease else lambda: None)
    return Parts(
        storage=storage,
        graph=graph,
        history=history,
        inbox=inbox,
        status=status,
        journal=journal,
        metrics=metrics,
        listener=listener,
        records=records,
        failures=FailureRecord(job, options.restart_strategy, now_ms),
        layouts=layouts,
        rescaling=Rescaling(history, executor, now_ms, listener),
        autoscaler=autoscaler,
        savepoints=Savepoints(history, executor, options.savepoint_directory, now_ms, listener, Earlier(history)),
        schedule=_schedule(run, history, now_ms),
        garbage=GarbageCollection(history, run.id, options.checkpoint.num_retained),
        lease=lease,
        publisher=publisher,
        starter=starter,
        handing_over=HandOver(history, lease),
        succession=Succession(starter, restorer, executor, layouts, listener, inbox, run.succeeds, abandoned),
    )


def _schedule(run: Run, history: History, now_ms: Callable[[], int]) -> Schedule | None:
    schedule = run.options.savepoint_schedule
    if schedule is None:
        return None
    return Schedule(schedule, history, run.id, schedule.directory or run.options.savepoint_directory, now_ms)


def _for_job(operator: Operator, job: str, state_root: str) -> OperatorSpec:
    """An operator's spec, with its source or sink bound to this job."""
    spec = operator.spec
    if isinstance(spec, SourceSpec):
        return replace(spec, source=spec.source.for_job(SourceContext(operator.uid, job, state_root)))
    return SinkSpec(spec.sink.for_job(job)) if isinstance(spec, SinkSpec) else spec
