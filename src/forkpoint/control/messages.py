"""The messages of the control port."""

from __future__ import annotations

from typing import Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, JsonValue


class Message(BaseModel):
    """Fields that a later version adds are ignored, so that an earlier client understands its answers."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class RequestBody(Message):
    model_config = ConfigDict(extra="forbid")


class SavepointBody(RequestBody):
    """``directory``: an absolute path or URL below which the savepoint gets a directory; None: the job's default. ``epoch``: an
    earlier epoch, whose files are still there; None: the newest."""

    directory: str | None = None
    label: str | None = None
    note: str | None = None
    skip_unreadable: bool = False
    epoch: int | None = None


class StopBody(RequestBody):
    directory: str | None = None
    drain: bool = False
    skip_unreadable: bool = False


class RescaleBody(RequestBody):
    parallelism: int


class HandOverBody(RequestBody):
    """``successor``: a run of the job, which waits to lead it."""

    successor: str


LongRequest = SavepointBody | StopBody | RescaleBody | HandOverBody
"""What takes a while: it is accepted first, and answered later."""


class Accepted(Message):
    request_id: str = Field(validation_alias=AliasChoices("request-id", "request_id"), serialization_alias="request-id")


class SavepointProgress(Message):
    """How many of the savepoint's parts are written; ``total`` can grow at the beginning."""

    done: int
    total: int


class Answer(Message):
    """The status of a request. When COMPLETED, ``location`` of a savepoint, ``epoch`` from which a rescaled job has its new
    parallelism, or up to which this run led a job that it has handed over; ``failure`` when FAILED. ``doing``: a description of
    the long epoch that it waits for."""

    status: Literal["IN_PROGRESS", "COMPLETED", "FAILED"]
    location: str | None = None
    epoch: int | None = None
    failure: str | None = None
    progress: SavepointProgress | None = None
    doing: str | None = None


class ProblemMessage(Message):
    """What is wrong with a job: ``text`` in a sentence, without the job's name. ``severity``: critical if the job stands still.
    ``kind``: which of the known problems; ``uid``: the source or sink that it is about."""

    severity: Literal["warning", "critical"]
    kind: str
    uid: str | None = None
    text: str


class StatusMessage(Message):
    """The status of a run. Times are milliseconds since 1970 UTC; ``now_ms`` is the driver's clock.

    ``records`` and ``late_records_dropped``: elements by operator uid since the run's last (re)start; ``sources``: the uids of
    sources. ``ignored_files``: by source, the number of files that appeared too late to be read. ``rescaling_to``: the
    parallelism for which stores are being built. ``caught_up``: whether the stores of a run that waits to lead are close to the
    job's epochs. ``doing``: a description of a long epoch or start. ``problems``: the worst first.
    """

    job: str
    run: str
    state: Literal["starting", "standby", "running", "restarting", "ended"]
    epoch: int
    started_ms: int
    now_ms: int
    restarts: int
    parallelism: int
    records: dict[str, int]
    sources: list[str]
    late_records_dropped: dict[str, int] = Field(default_factory=dict)
    ignored_files: dict[str, int] = Field(default_factory=dict)
    watermarks: dict[str, int]
    savepoint_progress: SavepointProgress | None
    rescaling_to: int | None = None
    caught_up: bool = False
    failure: str | None
    pid: int
    doing: str | None = None
    problems: list[ProblemMessage] = Field(default_factory=list)

    @property
    def records_read(self) -> int:
        """Elements that the sources have read since the run's last (re)start."""
        return sum(self.records.get(uid, 0) for uid in self.sources)


class EpochMessage(Message):
    """An epoch of a run: when it reached each phase, the elements that its operators received (or emitted, if they have no
    input), and the bytes of state that it wrote."""

    epoch: int
    phases: dict[Literal["planned", "computed", "written", "committed", "published"], int]
    records: dict[str, int] = Field(default_factory=dict)
    changes_bytes: int = 0
    snapshot_bytes: int = 0


class FailureMessage(Message):
    """A failure, and the number of the restart that followed; None if the run ended."""

    at_ms: int
    failure: str
    restarts: int | None = None


class SavepointMessage(Message):
    """A savepoint that the run makes, has made (``path``), or failed to make (``failure``)."""

    savepoint: str
    epoch: int
    started_ms: int
    ended_ms: int | None = None
    path: str | None = None
    failure: str | None = None


class JournalMessage(Message):
    """The latest epochs, failures and savepoints of a run, oldest first. ``committed`` and ``failed``: how many epochs were
    committed, and attempts failed, in all. ``restored_epoch``: what it has (re)started from, at ``restored_ms``; None if that was
    from nothing."""

    job: str
    run: str
    epochs: list[EpochMessage]
    failures: list[FailureMessage]
    savepoints: list[SavepointMessage]
    committed: int
    failed: int
    restored_epoch: int | None = None
    restored_ms: int | None = None


class OperatorMetrics(Message):
    """An operator's counts since the last (re)start. ``busy_ms``: the time, over all subtasks, in which it was at work.
    ``bytes_in`` and ``bytes_out``: of exchanges between stages, and of what a source has read as columns. ``watermark_ms``: None
    before the first one, and after the last element."""

    records_in: int = 0
    records_out: int = 0
    late_records_dropped: int = 0
    busy_ms: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    watermark_ms: int | None = None


class WatermarkMetrics(Message):
    """The lowest watermark among the splits of a source (or timestamp assigner) that are neither idle nor read to their end, None
    if there is no watermark yet; and the split that has it. ``others``: how many more are as slow. ``next``: the split that is
    the slowest of the others; None if there is none. ``behind_ms``: by how much the one is behind the other, if both have a
    watermark; ``notable``: that is much."""

    watermark_ms: int | None
    split: str
    others: int = 0
    next: str | None = None
    behind_ms: int | None = None
    notable: bool = False


class BacklogMetrics(Message):
    """What a source knows of and has not planned yet. ``files``: in how many files that is; None if it is not in files."""

    amount: int
    unit: Literal["elements", "bytes"]
    files: int | None = None


class StateMetrics(Message):
    """About how many entries a state of an operator has, and how many bytes their keys and values have. ``kind``: such as value,
    map, or timers-event; each entry of timers is a timer."""

    uid: str
    name: str
    kind: str
    entries: int
    bytes: int


class DurationMetrics(Message):
    """How many durations there were, their sum, and how many took at most each of ``bounds_ms``."""

    count: int
    sum_ms: int
    bounds_ms: list[int]
    at_most: list[int]


class CatchUpMetrics(Message):
    """How often subtasks' stores were brought to an epoch's initial state in one way, and how long that took."""

    count: int
    sum_ms: int


class UserMetrics(Message):
    """A metric of a user function; ``group``: the names of its groups, joined by dots. ``value``: a count, or a gauge's value,
    which has a ``subtask``. Distributions also have a sum, and the least and greatest value."""

    uid: str
    group: str
    name: str
    kind: Literal["counter", "meter", "distribution", "gauge"]
    subtask: int | None = None
    value: float
    sum: float = 0.0
    least: float | None = None
    greatest: float | None = None


class MetricsMessage(Message):
    """The metrics of a run. They add up committed epochs only. Times are milliseconds since 1970 UTC; ``now_ms`` is the driver's
    clock.

    Counts are since the last (re)start, at ``since_ms``; ``restarts``, ``rescalings`` and ``savepoints`` since the run's start.
    ``operators``: by uid. ``watermarks``: by the uid of the source or timestamp assigner. ``epoch``: the last committed one, at
    ``committed_ms``; ``epochs``: how many; ``epoch_ms``: how long the one under way has been computing. ``durations``: by part
    of an epoch (plan, compute, write, commit, publish), and of whole ones ("epoch"). ``state_entries`` and ``state_bytes``:
    about what the subtasks' stores have; None if unknown. ``states``: about what they have of each state; None if unknown, as
    after an upgrade from an earlier release until each store has been read once. ``catch_ups``: by kind; ``stores_reused``: the
    tasks that found their store up to date. ``unpublished``: committed epochs that a sink has not published yet, by uid.
    ``silent_ms``: for how long an unbounded source has read nothing, by uid. ``problems``: what is wrong.
    """

    job: str
    run: str
    state: Literal["starting", "standby", "running", "restarting", "ended"]
    now_ms: int
    started_ms: int
    since_ms: int | None
    epoch: int
    epochs: int
    committed_ms: int | None
    epoch_ms: int
    restarts: int
    rescalings: int
    parallelism: int
    operators: dict[str, OperatorMetrics]
    watermarks: dict[str, WatermarkMetrics]
    backlog: dict[str, BacklogMetrics]
    user: list[UserMetrics]
    durations: dict[str, DurationMetrics]
    changelog_bytes: int
    snapshot_bytes: int
    state_entries: int | None
    state_bytes: int | None
    catch_ups: dict[str, CatchUpMetrics]
    stores_reused: int
    unpublished: dict[str, int]
    savepoints: int
    savepoints_failed: int
    savepoint_ms: int | None
    states: list[StateMetrics] | None = None
    silent_ms: dict[str, int] = Field(default_factory=dict)
    problems: list[ProblemMessage] = Field(default_factory=list)


ErrorCode = Literal["bad-request", "unauthorized", "not-found", "method-not-allowed", "job-ended", "internal"]


class ErrorDetail(Message):
    code: ErrorCode
    message: str


class ErrorMessage(Message):
    """All errors: ``{"error": {"code": …, "message": …}}``."""

    error: ErrorDetail


Operation = Literal["status", "journal", "metrics", "savepoint", "stop", "rescale", "hand-over", "cancel"]


class MailedRequest(RequestBody):
    """A request as a file below the state root. ``run``: the only run that it is for."""

    run: str
    operation: Operation
    body: dict[str, JsonValue] = Field(default_factory=dict)


class MailedAnswer(Message):
    """Its answer: ``status`` after a status or cancel request, ``journal`` and ``metrics`` after one for them, ``savepoint``
    after one for what takes a while, as far as that has come, ``error`` if it was refused."""

    status: StatusMessage | None = None
    journal: JournalMessage | None = None
    metrics: MetricsMessage | None = None
    savepoint: Answer | None = None
    error: ErrorDetail | None = None

    @property
    def final(self) -> bool:
        """Whether nothing follows."""
        return self.savepoint is None or self.savepoint.status != "IN_PROGRESS"
