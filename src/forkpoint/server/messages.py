"""Bodies of the REST API: Flink's, as far as forkpoint has a counterpart, with forkpoint's additional fields.

Times are milliseconds since 1970 UTC; -1 means none, as in Flink.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

JobState = Literal[
    "INITIALIZING", "CREATED", "RUNNING", "RESTARTING", "CANCELLING", "CANCELED", "FINISHED", "FAILED", "SUSPENDED", "RECONCILING"
]


NO_ID = "0" * 32


def _hyphens(name: str) -> str:
    return name.replace("_", "-")


class Shape(BaseModel):
    """A body with hyphens in field names, like most of Flink's."""

    model_config = ConfigDict(alias_generator=_hyphens, populate_by_name=True, frozen=True)


class Snake(BaseModel):
    """A body with unchanged field names: Flink's underscores or camel case, or forkpoint's own."""

    model_config = ConfigDict(frozen=True)


class Body(BaseModel):
    """A request body. Rejects unknown fields and strings in place of numbers."""

    model_config = ConfigDict(extra="forbid", strict=True)


# -- jobs


class JobIdStatus(Snake):
    id: str
    status: JobState


class JobIds(Snake):
    jobs: list[JobIdStatus]


class TaskCounts(Snake):
    total: int
    created: int = 0
    scheduled: int = 0
    deploying: int = 0
    running: int = 0
    finished: int = 0
    canceling: int = 0
    canceled: int = 0
    failed: int = 0
    reconciling: int = 0
    initializing: int = 0


class ProblemShown(Snake):
    """A problem of a job. ``severity``: critical if the job makes no progress or will not recover by itself. ``uid``: the
    affected source or sink. ``text``: a sentence, as in `forkpoint list`."""

    severity: Literal["warning", "critical"]
    kind: str
    uid: str | None
    text: str


class JobOverview(Shape):
    """A job. ``forkpoint-state``: the state of its newest run, as in `forkpoint list`. ``root``: the state root. ``doing``: what
    the job waits for, or what a long epoch does. ``problems``: the most severe first."""

    jid: str
    name: str
    start_time: int
    end_time: int
    duration: int
    state: JobState
    last_modification: int
    tasks: TaskCounts
    pending_operators: int = 0
    forkpoint_state: str
    run: str
    root: str
    epoch: int | None
    restarts: int | None
    records_read: int | None
    late_records_dropped: int | None
    parallelism: int | None
    doing: str | None
    reason: str | None
    problems: list[ProblemShown]


class JobOverviews(Snake):
    jobs: list[JobOverview]


class VertexMetrics(Shape):
    """Input and output of an operator. A value is unknown unless its ``-complete`` field is true."""

    read_bytes: int = 0
    read_bytes_complete: bool = False
    write_bytes: int = 0
    write_bytes_complete: bool = False
    read_records: int = 0
    read_records_complete: bool = True
    write_records: int = 0
    write_records_complete: bool = True
    accumulated_backpressured_time: int = 0
    accumulated_idle_time: int = 0
    accumulated_busy_time: float = 0.0


TaskState = Literal[
    "CREATED", "SCHEDULED", "DEPLOYING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED", "RECONCILING", "INITIALIZING"
]


class BacklogShown(Snake):
    """Known input that a source has not read yet. ``files``: the number of files; None for other input."""

    amount: int
    unit: Literal["elements", "bytes"]
    files: int | None


class StateSize(Snake):
    """The approximate size of a job's state, including timers; None if unknown."""

    entries: int | None
    bytes: int | None


class StateShown(Snake):
    """The approximate size of a state, or of an operator's timers in one time domain."""

    name: str
    kind: str
    entries: int
    bytes: int


class Vertex(Snake):
    """An operator. ``id``: a digest of its uid, in Flink's format. ``watermark``: in event time; None before the first watermark.
    ``states``: the sizes of its states; None if unknown."""

    id: str
    uid: str
    name: str
    kind: str
    slotSharingGroupId: str = NO_ID  # noqa: N815
    stage: int
    maxParallelism: int  # noqa: N815
    parallelism: int
    status: TaskState
    start_time: int = Field(serialization_alias="start-time")
    end_time: int = Field(serialization_alias="end-time")
    duration: int
    tasks: dict[TaskState, int]
    metrics: VertexMetrics
    watermark: int | None
    late_records_dropped: int = Field(serialization_alias="late-records-dropped")
    stateful: bool
    backlog: BacklogShown | None
    states: list[StateShown] | None


class VertexDetails(Vertex):
    """Details of an operator. ``subtasks``: always empty, because counts cover all subtasks."""

    now: int
    subtasks: list[JsonValue] = []


class PlanInput(Snake):
    num: int
    id: str
    uid: str
    ship_strategy: str
    exchange: str
    local_strategy: str = ""
    caching: str = ""
    tag: str | None


class PatternEdge(Snake):
    """What a state does with an event: take, ignore or proceed, which leaves it to the target. ``target``: a state's number."""

    action: str
    condition: str
    target: int


class PatternState(Snake):
    """A state of a pattern: normal, final, stop or pending. ``within_ms``: how long after the event before."""

    name: str
    stage: str
    kind: str
    within_ms: int | None
    edges: list[PatternEdge]


class PatternShown(Snake):
    """A pattern's states, from the one on in which matches begin; the same in words; how long a match may take."""

    states: list[PatternState]
    explanation: str
    total_ms: int | None


class PlanNode(Snake):
    id: str
    uid: str
    parallelism: int
    operator: str
    operator_strategy: str
    description: str
    stage: int
    optimizer_properties: dict[str, str] = {}
    type: str | None
    pattern: PatternShown | None
    inputs: list[PlanInput]


class JobPlan(Snake):
    jid: str
    name: str
    type: Literal["STREAMING", "BATCH"]
    nodes: list[PlanNode]


class PlanAnswer(Snake):
    plan: JobPlan


class SplitShown(Snake):
    """The event-time progress of a split. ``idle``: the source's watermark does not wait for it. ``holds``: it is the slowest
    active split, which holds back the source's watermark."""

    split: str
    watermark: int
    records: int
    last_active: int
    idle: bool
    holds: bool


class HoldShown(Snake):
    """The split that holds back a source's watermark. ``others``: the number of equally slow splits. ``next``: the next slowest
    split. ``behind``: the distance to ``next``; None unless both have a watermark. ``notable``: whether the distance is large."""

    split: str
    watermark: int
    others: int
    next: str | None
    behind: int | None
    notable: bool


class SourceShown(Snake):
    """The event-time progress of a source. ``hold``: None without an active split."""

    uid: str
    finished: bool
    watermark: int | None
    hold: HoldShown | None
    splits: list[SplitShown]


class JobDetails(Snake):
    jid: str
    name: str
    isStoppable: bool  # noqa: N815
    state: JobState
    start_time: int = Field(serialization_alias="start-time")
    end_time: int = Field(serialization_alias="end-time")
    duration: int
    maxParallelism: int  # noqa: N815
    now: int
    timestamps: dict[JobState, int]
    vertices: list[Vertex]
    status_counts: dict[TaskState, int] = Field(serialization_alias="status-counts")
    plan: JobPlan
    job_type: Literal["STREAMING", "BATCH"] = Field(serialization_alias="job-type")
    pending_operators: int = Field(default=0, serialization_alias="pending-operators")
    overview: JobOverview
    sources: list[SourceShown]
    unpublished: dict[str, int]
    state_size: StateSize = Field(serialization_alias="state-size")


class ExecutionConfig(Shape):
    execution_mode: str
    restart_strategy: str
    job_parallelism: int
    object_reuse_mode: bool = False
    user_config: dict[str, str]


class JobConfig(Shape):
    """The configuration of a job's newest run. ``options``: all options in the run's record."""

    jid: str
    name: str
    execution_config: ExecutionConfig
    options: dict[str, JsonValue]
    versions: dict[str, str]


class ExceptionEntry(Snake):
    exceptionName: str  # noqa: N815
    stacktrace: str
    timestamp: int
    taskName: str | None = None  # noqa: N815
    restarts: int | None


class ExceptionHistory(Snake):
    entries: list[ExceptionEntry]
    truncated: bool


class JobExceptions(Shape):
    root_exception: str | None
    timestamp: int | None
    all_exceptions: list[JsonValue] = []
    truncated: bool
    exception_history: ExceptionHistory = Field(serialization_alias="exceptionHistory")


class MetricValue(Snake):
    id: str
    value: str | None = None


class AggregatedMetric(Snake):
    """A metric, aggregated. Omits unknown values."""

    id: str
    min: float | None = None
    max: float | None = None
    avg: float | None = None
    sum: float | None = None


class JobStatusShown(Snake):
    status: JobState


class RunShown(Snake):
    """A run of a job. ``arguments``: the program's arguments; None if they are unknown or the caller's role is ``read``."""

    run: str
    state: str
    newest: bool
    started_ms: int
    ended_ms: int | None
    epoch: int | None
    restarts: int | None
    reason: str | None
    parent: dict[str, JsonValue]
    program: str | None
    arguments: list[str] | None


class Runs(Snake):
    runs: list[RunShown]


# -- checkpoints


class CheckpointCounts(Snake):
    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class Statistics(Snake):
    min: int
    max: int
    avg: int
    p50: int
    p90: int
    p95: int
    p99: int
    p999: int


class CheckpointSummary(Snake):
    checkpointed_size: Statistics
    state_size: Statistics
    end_to_end_duration: Statistics


class Checkpoint(Snake):
    """An epoch, which corresponds to Flink's checkpoint. ``phases``: the time it reached each phase. ``records``: the number of
    elements by uid."""

    id: int
    status: Literal["IN_PROGRESS", "COMPLETED"]
    is_savepoint: bool = False
    trigger_timestamp: int
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int = 0
    processed_data: int = 0
    persisted_data: int = 0
    num_subtasks: int
    num_acknowledged_subtasks: int
    checkpoint_type: Literal["CHECKPOINT"] = "CHECKPOINT"
    phases: dict[str, int]
    records: dict[str, int]


class RestoredCheckpoint(Snake):
    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str | None


class LatestCheckpoints(Snake):
    completed: Checkpoint | None
    savepoint: JsonValue
    failed: None = None
    restored: RestoredCheckpoint | None


class Checkpoints(Snake):
    counts: CheckpointCounts
    summary: CheckpointSummary
    latest: LatestCheckpoints
    history: list[Checkpoint]


class Externalization(Snake):
    enabled: bool
    delete_on_cancellation: bool


class CheckpointsConfig(Snake):
    mode: Literal["exactly_once"] = "exactly_once"
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int = 1
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    num_retained: int


# -- asynchronous requests


class RequestId(Shape):
    request_id: str


class AsynchronousStatus(Snake):
    id: Literal["IN_PROGRESS", "COMPLETED"]


class FailureCause(Shape):
    """A throwable in Flink's format: ``class`` and ``stack-trace``."""

    class_: str = Field(serialization_alias="class")
    stack_trace: str


class JobResult(Shape):
    """The result of a job. ``application-status``: SUCCEEDED, FAILED, CANCELED or UNKNOWN."""

    id: str
    application_status: str
    accumulator_results: dict[str, str] = {}
    net_runtime: int
    failure_cause: FailureCause | None = None


class ExecutionResult(Shape):
    status: AsynchronousStatus
    job_execution_result: JobResult | None = None


class SavepointOperation(Shape):
    location: str | None = None
    failure_cause: FailureCause | None = None


class SavepointStatus(Snake):
    status: AsynchronousStatus
    operation: SavepointOperation | None = None


class DisposalOperation(Shape):
    failure_cause: FailureCause | None = None


class DisposalStatus(Snake):
    status: AsynchronousStatus
    operation: DisposalOperation | None = None


class RequestShown(Snake):
    """A request. ``result``: what the command of the same name prints with `--output json`."""

    id: str
    kind: str
    job: str | None
    by: str
    started_ms: int
    status: Literal["IN_PROGRESS", "COMPLETED", "FAILED"]
    step: str | None
    done: int | None
    total: int | None
    remarks: list[str]
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


Text = Annotated[str, Field(max_length=2_000)]


class SavepointBody(BaseModel):
    """Flink's fields of a savepoint request, and forkpoint's ``label``, ``note``, ``skip-unreadable`` and ``self-contained``."""

    target_directory: Text | None = Field(None, alias="target-directory")
    cancel_job: bool = Field(False, alias="cancel-job")
    format_type: Literal["CANONICAL", "NATIVE"] | None = Field(None, alias="formatType")
    trigger_id: Text | None = Field(None, alias="triggerId")
    label: Text | None = None
    note: Text | None = None
    skip_unreadable: bool = Field(False, alias="skip-unreadable")
    self_contained: bool = Field(False, alias="self-contained")

    model_config = ConfigDict(extra="forbid", strict=True)


class StopBody(BaseModel):
    target_directory: Text | None = Field(None, alias="targetDirectory")
    drain: bool = False
    format_type: Literal["CANONICAL", "NATIVE"] | None = Field(None, alias="formatType")
    trigger_id: Text | None = Field(None, alias="triggerId")
    skip_unreadable: bool = Field(False, alias="skip-unreadable")
    self_contained: bool = Field(False, alias="self-contained")

    model_config = ConfigDict(extra="forbid", strict=True)


class DisposalBody(BaseModel):
    savepoint_path: Text = Field(alias="savepoint-path")

    model_config = ConfigDict(extra="forbid", strict=True)


class Empty(Snake):
    """An empty response."""
