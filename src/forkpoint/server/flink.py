"""Jobs in Flink's shapes. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import structs

from forkpoint.checkpoint.manifest import Manifest, Run, SourcePosition
from forkpoint.checkpoint.plan import Plan, PlanOperator
from forkpoint.driver.commit.measurements import hold_of, states_of
from forkpoint.driver.serve.reports import watermark_metrics
from forkpoint.functions import MIN_WATERMARK
from forkpoint.protocol.messages import (
    BacklogMetrics,
    EpochEntry,
    JournalMessage,
    MetricsMessage,
    OperatorMetrics,
    StateMetrics,
    StatusMessage,
    WatermarkMetrics,
)
from forkpoint.server import messages as m
from forkpoint.server.service import JobEntry

NONE = -1
_STATES: Mapping[str, m.JobState] = {
    "starting": "INITIALIZING",
    "standby": "CREATED",
    "running": "RUNNING",
    "restarting": "RESTARTING",
    "ending": "CANCELLING",
    "silent": "RECONCILING",
    "elsewhere": "RECONCILING",
    "lost": "SUSPENDED",
    "unknown": "SUSPENDED",
    "finished": "FINISHED",
    "stopped": "FINISHED",
    "superseded": "FINISHED",
    "cancelled": "CANCELED",
    "failed": "FAILED",
}
_COUNTED: Mapping[m.JobState, str] = {
    "INITIALIZING": "initializing",
    "CREATED": "created",
    "RUNNING": "running",
    "RESTARTING": "scheduled",
    "CANCELLING": "canceling",
    "CANCELED": "canceled",
    "FINISHED": "finished",
    "FAILED": "failed",
    "RECONCILING": "reconciling",
    "SUSPENDED": "canceled",
}


def vertex_id(uid: str) -> str:
    """The id of an operator in Flink's form: 32 hexadecimal digits."""
    return hashlib.sha256(uid.encode()).hexdigest()[:32]


def state_of(entry: JobEntry) -> m.JobState:
    return _STATES[entry.view.state]


def task_state(state: m.JobState) -> m.TaskState:
    """The state of a job's tasks."""
    return cast("m.TaskState", _COUNTED[state].upper())


def overview(entry: JobEntry, now_ms: int) -> m.JobOverview:
    view, state = entry.view, state_of(entry)
    status, late = view.status, view.late_records_dropped
    parallelism = None if status is None else status.parallelism
    tasks = parallelism or 0
    ended_ms = view.ended_ms
    return m.JobOverview(
        jid=entry.id,
        name=entry.name,
        start_time=view.started_ms,
        end_time=NONE if ended_ms is None else ended_ms,
        duration=max(0, (ended_ms or now_ms) - view.started_ms),
        state=state,
        last_modification=ended_ms or view.started_ms,
        tasks=m.TaskCounts(total=tasks, **{_COUNTED[state]: tasks}),
        forkpoint_state=view.state,
        run=view.run,
        root=entry.root.place,
        epoch=view.epoch,
        restarts=view.restarts,
        records_read=view.records_read,
        late_records_dropped=None if late is None else sum(late.values()),
        parallelism=parallelism,
        doing=view.doing,
        reason=view.reason,
        problems=[m.ProblemShown(**structs.asdict(each)) for each in view.problems],
    )


def plan(entry: JobEntry, found: Plan, record: Run | None) -> m.JobPlan:
    parallelism = _parallelism(entry, record)
    mode = None if record is None else record.options.get("runtime_mode")
    nodes = [
        m.PlanNode(
            id=vertex_id(operator.uid),
            uid=operator.uid,
            parallelism=parallelism,
            operator=operator.kind,
            operator_strategy="",
            description=operator.name,
            stage=operator.stage,
            optimizer_properties=operator.properties,
            type=operator.type,
            pattern=None if operator.pattern is None else m.PatternShown(**operator.pattern.content()),
            inputs=[
                m.PlanInput(
                    num=number,
                    id=vertex_id(each.uid),
                    uid=each.uid,
                    ship_strategy=each.ship_strategy,
                    exchange="pipelined_bounded" if each.crosses else "local",
                    tag=each.tag,
                )
                for number, each in enumerate(operator.inputs)
            ],
        )
        for operator in found.operators
    ]
    return m.JobPlan(jid=entry.id, name=entry.name, type="BATCH" if mode == "BATCH" else "STREAMING", nodes=nodes)


def details(
    entry: JobEntry, found: Plan, record: Run | None, measured: MetricsMessage | None, newest: Manifest | None, now_ms: int
) -> m.JobDetails:
    """``measured``: before ``newest`` was read."""
    shown, state, status = overview(entry, now_ms), state_of(entry), entry.view.status
    counts = {operator.uid: _count(operator.uid, status, record, newest) for operator in found.operators}
    read = [n for each in found.operators if not each.inputs and (n := counts[each.uid]) is not None]
    if not shown.records_read and read:
        shown = shown.model_copy(update={"records_read": sum(read)})
    watermarks = status.watermarks if status is not None else {} if newest is None else newest.watermarks
    states = _states(newest, measured)
    vertices = [
        _vertex(shown, operator, status, counts[operator.uid], watermarks, record, measured, states)
        for operator in found.operators
    ]
    stamps = dict.fromkeys(_COUNTED, 0) | {state: shown.last_modification}
    drawn = plan(entry, found, record)
    return m.JobDetails(
        jid=entry.id,
        name=entry.name,
        isStoppable=False,
        state=state,
        start_time=shown.start_time,
        end_time=shown.end_time,
        duration=shown.duration,
        maxParallelism=_option(record, "max_parallelism", NONE),
        now=now_ms,
        timestamps=stamps,
        vertices=vertices,
        status_counts={task_state(state): len(vertices)},
        plan=drawn,
        job_type=drawn.type,
        overview=shown,
        sources=[] if newest is None else sources(newest, measured),
        state_size=m.StateSize(
            entries=None if states is None else sum(state.entries for state in states),
            bytes=None if states is None else sum(state.bytes for state in states),
        ),
        unpublished={} if newest is None else {uid: len(each) for uid, each in newest.unpublished.items()},
    )


def sources(newest: Manifest, measured: MetricsMessage | None) -> list[m.SourceShown]:
    """The sources and their splits as of the newest manifest, and the split that holds back each watermark: according to the
    driver, which knows the idle splits, or else to the manifest. ``measured``: before ``newest`` was read."""
    return [_source(uid, source, newest.watermarks.get(uid), measured) for uid, source in newest.sources.items()]


def _source(uid: str, source: SourcePosition, watermark: int | None, measured: MetricsMessage | None) -> m.SourceShown:
    known = measured is not None and measured.epochs > 0
    hold = measured.watermarks.get(uid) if measured is not None and known else _held(source)
    slowest = None if hold is None else source.splits.get(hold.split)
    passed_ms = hold.watermark_ms if hold is not None and known else None
    splits = []
    for split, each in sorted(source.splits.items()):
        idle = each.marked_idle or (passed_ms is not None and each.watermark_ms < passed_ms)
        several = hold is not None and (hold.next is not None or hold.others > 0)
        holds = several and not idle and slowest is not None and each.watermark_ms == slowest.watermark_ms
        splits.append(
            m.SplitShown(
                split=split,
                watermark=each.watermark_ms,
                records=each.count,
                last_active=each.last_active_ms,
                idle=idle,
                holds=holds,
            )
        )
    shown = None
    if hold is not None:
        mark = MIN_WATERMARK if hold.watermark_ms is None else hold.watermark_ms
        shown = m.HoldShown(
            split=hold.split, watermark=mark, others=hold.others, next=hold.next, behind=hold.behind_ms, notable=hold.notable
        )
    return m.SourceShown(uid=uid, finished=source.finished, watermark=watermark, hold=shown, splits=splits)


def _held(source: SourcePosition) -> WatermarkMetrics | None:
    hold = hold_of({split: each for split, each in source.splits.items() if not each.marked_idle})
    return None if hold is None or hold.split is None else watermark_metrics(hold, hold.split)


def config(entry: JobEntry, record: Run | None) -> m.JobConfig:
    options: dict[str, Any] = {} if record is None else dict(record.options)
    parameters = options.get("parameters")
    execution = m.ExecutionConfig(
        execution_mode="PIPELINED",
        restart_strategy=_strategy(options.get("restart_strategy")),
        job_parallelism=_parallelism(entry, record),
        user_config={} if not isinstance(parameters, dict) else {name: str(value) for name, value in parameters.items()},
    )
    return m.JobConfig(
        jid=entry.id,
        name=entry.name,
        execution_config=execution,
        options=options,
        versions={} if record is None else dict(record.versions),
    )


def execution_result(entry: JobEntry) -> m.ExecutionResult:
    """The end of the job's newest run, if it has ended."""
    view = entry.view
    ended = {"FINISHED": "SUCCEEDED", "CANCELED": "CANCELED", "FAILED": "FAILED"}.get(state_of(entry))
    if ended is None:
        return m.ExecutionResult(status=m.AsynchronousStatus(id="IN_PROGRESS"))
    cause = m.FailureCause(class_="forkpoint.JobFailed", stack_trace=view.reason or "") if ended == "FAILED" else None
    result = m.JobResult(
        id=entry.id,
        application_status=ended,
        net_runtime=max(0, (view.ended_ms or view.started_ms) - view.started_ms),
        failure_cause=cause,
    )
    return m.ExecutionResult(status=m.AsynchronousStatus(id="COMPLETED"), job_execution_result=result)


def exceptions(entry: JobEntry, journal: JournalMessage | None) -> m.JobExceptions:
    """The failures of the job's newest run, newest first."""
    entries = [
        m.ExceptionEntry(
            exceptionName=each.failure.split("\n", 1)[0][:200],
            stacktrace=each.failure,
            timestamp=each.at_ms,
            restarts=each.restarts,
        )
        for each in reversed([] if journal is None else journal.failures)
    ]
    view = entry.view
    if not entries and view.reason is not None:
        entries = [
            m.ExceptionEntry(
                exceptionName=view.reason.split("\n", 1)[0][:200],
                stacktrace=view.reason,
                timestamp=view.ended_ms or view.started_ms,
                restarts=view.restarts,
            )
        ]
    newest = entries[0] if entries else None
    truncated = journal is not None and journal.failed > len(journal.failures)
    return m.JobExceptions(
        root_exception=None if newest is None else newest.stacktrace,
        timestamp=None if newest is None else newest.timestamp,
        truncated=truncated,
        exception_history=m.ExceptionHistory(entries=entries, truncated=truncated),
    )


def checkpoints(entry: JobEntry, journal: JournalMessage | None) -> m.Checkpoints:
    """The epochs in the driver's journal; none for a job that does not run."""
    epochs = [] if journal is None else journal.epochs
    subtasks = 0 if entry.view.status is None else entry.view.status.parallelism
    history = [checkpoint(each, subtasks) for each in reversed(epochs)]
    completed = [each for each in history if each.status == "COMPLETED"]
    committed, failed = (0, 0) if journal is None else (journal.committed, journal.failed)
    under_way = len(history) - len(completed) if history and history[0].status == "IN_PROGRESS" else 0
    restored = None
    if journal is not None and journal.restored_epoch is not None and journal.restored_ms is not None:
        parent = entry.view.parent
        restored = m.RestoredCheckpoint(
            id=journal.restored_epoch,
            restore_timestamp=journal.restored_ms,
            is_savepoint=parent.kind == "savepoint",
            external_path=parent.savepoint_path,
        )
    made = [] if journal is None else [each for each in journal.savepoints if each.path is not None]
    sizes = [each.checkpointed_size for each in completed]
    return m.Checkpoints(
        counts=m.CheckpointCounts(
            restored=int(restored is not None),
            total=committed + failed + min(under_way, 1),
            in_progress=min(under_way, 1),
            completed=committed,
            failed=failed,
        ),
        summary=m.CheckpointSummary(
            checkpointed_size=statistics(sizes),
            state_size=statistics(sizes),
            end_to_end_duration=statistics([each.end_to_end_duration for each in completed]),
        ),
        latest=m.LatestCheckpoints(
            completed=completed[0] if completed else None, savepoint=structs.asdict(made[-1]) if made else None, restored=restored
        ),
        history=history,
    )


def checkpoint(epoch: EpochEntry, subtasks: int) -> m.Checkpoint:
    """An epoch as a checkpoint."""
    begun, newest = min(epoch.phases.values()), max(epoch.phases.values())
    done = "committed" in epoch.phases
    size = epoch.changes_bytes + epoch.snapshot_bytes
    return m.Checkpoint(
        id=epoch.epoch,
        status="COMPLETED" if done else "IN_PROGRESS",
        trigger_timestamp=begun,
        latest_ack_timestamp=newest,
        checkpointed_size=size,
        state_size=size,
        end_to_end_duration=newest - begun,
        num_subtasks=subtasks,
        num_acknowledged_subtasks=subtasks if done else 0,
        records=dict(epoch.records),
        phases={str(phase): at_ms for phase, at_ms in epoch.phases.items()},
    )


def checkpoints_config(entry: JobEntry, record: Run | None) -> m.CheckpointsConfig:
    return m.CheckpointsConfig(
        interval=_option(record, "interval_ms", 0),
        timeout=_option(record, "timeout_ms", 0),
        min_pause=_option(record, "min_pause_ms", 0),
        num_retained=_option(record, "num_retained", 1),
        externalization=m.Externalization(enabled=True, delete_on_cancellation=False),
        state_backend=str(None if record is None else record.options.get("state_backend")),
        checkpoint_storage=entry.root.place,
    )


def statistics(values: Sequence[int]) -> m.Statistics:
    """Statistics of these values; zeros without any."""
    ordered = sorted(values) or [0]

    def at(share: float) -> int:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return m.Statistics(
        min=ordered[0],
        max=ordered[-1],
        avg=sum(ordered) // len(ordered),
        p50=at(0.5),
        p90=at(0.9),
        p95=at(0.95),
        p99=at(0.99),
        p999=at(0.999),
    )


def _count(uid: str, status: StatusMessage | None, record: Run | None, newest: Manifest | None) -> int | None:
    """The number of elements that an operator has received, or emitted without an input: since the last (re)start of a live run;
    the last known number of a run that has ended, or has not committed since its restart. None if unknown."""
    if status is not None and (status.records or not status.restarts):
        return status.records.get(uid, 0)
    if status is None and record is not None and record.records:
        return record.records.get(uid, 0)
    position = None if newest is None else newest.sources.get(uid)
    return None if position is None or not position.splits else sum(each.count for each in position.splits.values())


def _vertex(
    shown: m.JobOverview,
    operator: PlanOperator,
    status: StatusMessage | None,
    count: int | None,
    watermarks: Mapping[str, int],
    record: Run | None,
    measured: MetricsMessage | None,
    states: Sequence[StateMetrics] | None,
) -> m.Vertex:
    records = count or 0
    late = 0 if status is None else status.late_records_dropped.get(operator.uid, 0)
    mark = watermarks.get(operator.uid)
    read_in = 0 if not operator.inputs else records
    at = task_state(shown.state)
    return m.Vertex(
        id=vertex_id(operator.uid),
        uid=operator.uid,
        name=operator.name,
        kind=operator.kind,
        stage=operator.stage,
        maxParallelism=_option(record, "max_parallelism", NONE),
        parallelism=shown.parallelism or 0,
        status=at,
        start_time=shown.start_time,
        end_time=shown.end_time,
        duration=shown.duration,
        tasks={at: shown.parallelism or 0},
        metrics=_vertex_metrics(
            read_in, records - read_in, count is not None, None if measured is None else measured.operators.get(operator.uid)
        ),
        backlog=_backlog(None if measured is None else measured.backlog.get(operator.uid)),
        watermark=None if mark is None or mark <= MIN_WATERMARK else mark,
        late_records_dropped=late,
        stateful=operator.stateful,
        states=_states_of(operator.uid, states),
    )


def _states(newest: Manifest | None, measured: MetricsMessage | None) -> Sequence[StateMetrics] | None:
    """The size of each state, from the driver or else the newest manifest; None if unknown."""
    if measured is not None:
        return measured.states
    return None if newest is None else states_of(newest)


def _states_of(uid: str, states: Sequence[StateMetrics] | None) -> list[m.StateShown] | None:
    if states is None:
        return None
    return [m.StateShown(name=s.name, kind=s.kind, entries=s.entries, bytes=s.bytes) for s in states if s.uid == uid]


def _backlog(known: BacklogMetrics | None) -> m.BacklogShown | None:
    return None if known is None else m.BacklogShown(amount=known.amount, unit=known.unit, files=known.files)


def _vertex_metrics(read: int, written: int, known: bool, measured: OperatorMetrics | None) -> m.VertexMetrics:
    counted = m.VertexMetrics(read_records=read, write_records=written, read_records_complete=known, write_records_complete=known)
    if measured is None:
        return counted
    more = {
        "read_bytes": measured.bytes_in,
        "read_bytes_complete": True,
        "write_bytes": measured.bytes_out,
        "write_bytes_complete": True,
        "accumulated_busy_time": measured.busy_ms,
    }
    return counted.model_copy(update=more)


def _parallelism(entry: JobEntry, record: Run | None) -> int:
    status = entry.view.status
    return status.parallelism if status is not None else _option(record, "parallelism", 0)


def _option(record: Run | None, name: str, default: int) -> int:
    found = None if record is None else record.options.get(name)
    return found if isinstance(found, int) else default


def _strategy(recorded: Any) -> str:
    if not isinstance(recorded, dict):
        return "unknown"
    attempts, delay_ms = recorded.get("attempts"), recorded.get("delay_ms")
    return f"{recorded.get('kind')}, {'no limit of attempts' if attempts is None else f'{attempts} attempts'}, {delay_ms} ms"
