"""The messages between a running job's driver and its clients: a struct for each request and each answer.

A request names its answer. The driver first accepts a long request (`LongRequest`); the client then polls for the final answer.
Carriers (`http` and `port`, `mailbox`) transport messages as JSON. External messages are validated when they are read. Clients
ignore fields that a later release adds to an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from msgspec import DecodeError, Struct, ValidationError, field

from forkpoint.decoders import json_decoder
from forkpoint.errors import ForkpointError

S = TypeVar("S", bound=Struct)
T = TypeVar("T")
A = TypeVar("A", bound="Message", covariant=True)
L = TypeVar("L", bound="LongAnswer", covariant=True)

DriverState = Literal["starting", "standby", "running", "restarting", "ended"]
Phase = Literal["planned", "computed", "written", "committed", "published"]
Severity = Literal["warning", "critical"]
ErrorCode = Literal["bad-request", "unauthorized", "not-found", "method-not-allowed", "job-ended", "internal"]


class Message(Struct, frozen=True):
    """Base of all answers, and of their parts."""


# -- answers


class Problem(Message, frozen=True):
    """A problem of a job. ``severity``: critical if the job makes no progress or will not recover by itself. ``uid``: the
    affected source, sink or operator; None for the entire job, or if it is unknown. ``kind``: lost, failed, silent or elsewhere
    for a driver that does not answer; unpublished for a job that does not run; restart-loop, restarting, input, no-data,
    watermark, output, sink-behind, long-epoch, slow-epochs, backlog or skew. ``text``: a sentence, without the job's name."""

    severity: Severity
    kind: str
    uid: str | None
    text: str


class SavepointProgress(Message, frozen=True):
    """The number of written parts of a savepoint; ``total`` can grow at the beginning."""

    done: int
    total: int


class StatusMessage(Message, frozen=True, kw_only=True):
    """The status of a run. Times are milliseconds since 1970 UTC; ``now_ms`` is the driver's clock.

    ``records`` and ``late_records_dropped``: elements by operator uid since the run's last (re)start; ``sources``: the uids of
    sources. ``ignored_files``: by source, the number of files that appeared too late. ``rescaling_to``: the target of a rescaling
    in progress. ``caught_up``: whether the stores of a run that waits to lead have caught up with the job. ``doing``: a
    description of a long epoch or start. ``problems``: the most severe first.
    """

    job: str
    run: str
    state: DriverState
    epoch: int
    started_ms: int
    now_ms: int
    restarts: int
    parallelism: int
    records: Mapping[str, int]
    sources: list[str]
    late_records_dropped: Mapping[str, int] = {}
    ignored_files: Mapping[str, int] = {}
    watermarks: Mapping[str, int]
    savepoint_progress: SavepointProgress | None
    rescaling_to: int | None = None
    caught_up: bool = False
    failure: str | None
    pid: int
    doing: str | None = None
    problems: list[Problem] = []

    @property
    def records_read(self) -> int:
        """Elements that the sources have read since the run's last (re)start."""
        return sum(self.records.get(uid, 0) for uid in self.sources)


class EpochEntry(Message, frozen=True):
    """An epoch of a run. ``phases``: when it reached each phase; without "committed", it is running or was given up. ``records``:
    the number of elements that operators received, or emitted without an input, by uid. The bytes are those of state."""

    epoch: int
    phases: Mapping[Phase, int]
    records: Mapping[str, int] = {}
    changes_bytes: int = 0
    snapshot_bytes: int = 0


class FailureEntry(Message, frozen=True):
    """A failure, and the number of the restart that followed; None if it ended the run."""

    at_ms: int
    failure: str
    restarts: int | None = None


class SavepointEntry(Message, frozen=True):
    """A savepoint of the run: in progress, complete (``path``) or failed (``failure``)."""

    savepoint: str
    epoch: int
    started_ms: int
    ended_ms: int | None = None
    path: str | None = None
    failure: str | None = None


class JournalMessage(Message, frozen=True):
    """The latest epochs, failures and savepoints of a run, oldest first. ``committed`` and ``failed``: the total numbers of
    committed epochs and failed attempts. ``restored_epoch``: the epoch from which it has (re)started, at ``restored_ms``; None
    without initial state."""

    job: str
    run: str
    epochs: list[EpochEntry]
    failures: list[FailureEntry]
    savepoints: list[SavepointEntry]
    committed: int
    failed: int
    restored_epoch: int | None = None
    restored_ms: int | None = None


class OperatorMetrics(Message, frozen=True):
    """An operator's counts since the last (re)start. ``busy_ms``: the busy time of all subtasks. ``bytes_in`` and ``bytes_out``:
    of exchanges between stages, and of columns that a source has read. ``watermark_ms``: None before the first watermark, and
    after the last element."""

    records_in: int = 0
    records_out: int = 0
    late_records_dropped: int = 0
    busy_ms: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    watermark_ms: int | None = None


class WatermarkMetrics(Message, frozen=True):
    """The lowest watermark among the splits of a source (or timestamp assigner) that are neither idle nor finished, with its
    split; None before the first watermark. ``others``: the number of splits that are equally slow. ``next``: the slowest split
    ahead of it, if any. ``behind_ms``: the distance between these two splits, if both have a watermark; ``notable``: the distance
    is large."""

    watermark_ms: int | None
    split: str
    others: int = 0
    next: str | None = None
    behind_ms: int | None = None
    notable: bool = False


class BacklogMetrics(Message, frozen=True):
    """The known input that a source has not planned yet. ``files``: its number of files; None if it is not in files."""

    amount: int
    unit: Literal["elements", "bytes"]
    files: int | None = None


class StateMetrics(Message, frozen=True):
    """The approximate number of entries of a state, and of the bytes of their keys and values. ``kind``: such as value, map, or
    timers-event, where each entry is a timer."""

    uid: str
    name: str
    kind: str
    entries: int
    bytes: int


class DurationMetrics(Message, frozen=True):
    """The number of durations, their sum, and how many were at most each of ``bounds_ms``."""

    count: int
    sum_ms: int
    bounds_ms: list[int]
    at_most: list[int]


class CatchUpMetrics(Message, frozen=True):
    """How often subtasks' stores caught up with an epoch's initial state in one way, and the total time."""

    count: int
    sum_ms: int


class UserMetrics(Message, frozen=True):
    """A metric of a user function. ``group``: the names of its groups, joined by dots. ``value``: a count, or the value of a
    gauge, which has a ``subtask``. Distributions also have a sum, a minimum and a maximum."""

    uid: str
    group: str
    name: str
    kind: Literal["counter", "meter", "distribution", "gauge"]
    value: float
    subtask: int | None = None
    sum: float = 0.0
    least: float | None = None
    greatest: float | None = None


class MetricsMessage(Message, frozen=True, kw_only=True):
    """The metrics of a run, which cover only committed epochs. Times are milliseconds since 1970 UTC; ``now_ms`` is the driver's
    clock.

    Counts are since the last (re)start, at ``since_ms``; ``restarts``, ``rescalings`` and ``savepoints`` since the run's start.
    ``operators``: by uid. ``watermarks``: by the uid of the source or timestamp assigner. ``epoch``: the last committed epoch, at
    ``committed_ms``; ``epochs``: the number of committed epochs; ``epoch_ms``: how long the running epoch has been computing.
    ``durations``: by part of an epoch (plan, compute, write, commit, publish), and of entire epochs ("epoch"). ``state_entries``
    and ``state_bytes``: the approximate size of the subtasks' stores; None if unknown. ``states``: the approximate size of each
    state; None if unknown, for example after an upgrade from an earlier release until each store has been read once.
    ``catch_ups``: by kind; ``stores_reused``: the number of tasks that found their store up to date. ``unpublished``: the number
    of committed epochs that a sink has not published yet, by uid. ``silent_ms``: how long an unbounded source has read no
    element, by uid.
    """

    job: str
    run: str
    state: DriverState
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
    unpublished: Mapping[str, int]
    savepoints: int
    savepoints_failed: int
    savepoint_ms: int | None
    states: list[StateMetrics] | None = None
    silent_ms: Mapping[str, int] = {}
    problems: list[Problem] = []


class Accepted(Message, frozen=True):
    """The id to poll for the answer to a long request."""

    request_id: str = field(name="request-id")


class LongAnswer(Message, frozen=True, kw_only=True):
    """The progress of a long request. ``failure``: why it FAILED. ``doing``: a description of the epoch that it waits for."""

    status: Literal["IN_PROGRESS", "COMPLETED", "FAILED"]
    failure: str | None = None
    doing: str | None = None


class SavepointAnswer(LongAnswer, frozen=True, kw_only=True):
    """``location``: of a COMPLETED savepoint."""

    location: str | None = None
    progress: SavepointProgress | None = None


class EpochAnswer(LongAnswer, frozen=True, kw_only=True):
    """``epoch``: the result of a COMPLETED request."""

    epoch: int | None = None


class RescaleAnswer(EpochAnswer, frozen=True):
    """``epoch``: the first one at the new parallelism."""


class HandOverAnswer(EpochAnswer, frozen=True):
    """``epoch``: the last one of this run as the leader."""


class ErrorDetail(Message, frozen=True):
    code: ErrorCode
    message: str


class ErrorMessage(Message, frozen=True):
    """All errors: ``{"error": {"code": …, "message": …}}``."""

    error: ErrorDetail


# -- requests


class Request(Struct, Generic[A], frozen=True, forbid_unknown_fields=True):
    """Base of all requests. ``operation``: its name. ``answer``: the struct of its answer."""

    operation: ClassVar[str]
    answer: ClassVar[type[Message]]


class StatusRequest(Request[StatusMessage], frozen=True):
    operation = "status"
    answer = StatusMessage


class JournalRequest(Request[JournalMessage], frozen=True):
    operation = "journal"
    answer = JournalMessage


class MetricsRequest(Request[MetricsMessage], frozen=True):
    operation = "metrics"
    answer = MetricsMessage


class CancelRequest(Request[StatusMessage], frozen=True):
    """The job ends without a savepoint."""

    operation = "cancel"
    answer = StatusMessage


class LongRequest(Request[Accepted], Generic[L], frozen=True):
    """Base of requests that take long. ``outcome``: the struct of the answers to polls."""

    answer = Accepted
    outcome: ClassVar[type[LongAnswer]]


class SavepointRequest(LongRequest[SavepointAnswer], frozen=True):
    """``directory``: the absolute path or URL of the savepoint's parent directory; None: the job's default. ``epoch``: an earlier
    epoch whose files still exist; None: the newest. ``self_contained``: it refers to no files of an earlier savepoint."""

    operation = "savepoint"
    outcome = SavepointAnswer
    directory: str | None = None
    label: str | None = None
    note: str | None = None
    skip_unreadable: bool = False
    epoch: int | None = None
    self_contained: bool = False


class StopRequest(LongRequest[SavepointAnswer], frozen=True):
    """The job ends with a savepoint. ``drain``: it fires all timers and windows first."""

    operation = "stop"
    outcome = SavepointAnswer
    directory: str | None = None
    drain: bool = False
    skip_unreadable: bool = False
    self_contained: bool = False


class RescaleRequest(LongRequest[RescaleAnswer], frozen=True):
    operation = "rescale"
    outcome = RescaleAnswer
    parallelism: int


class HandOverRequest(LongRequest[HandOverAnswer], frozen=True):
    """``successor``: a run of the job that waits to lead it."""

    operation = "hand-over"
    outcome = HandOverAnswer
    successor: str


REQUESTS: Mapping[str, type[Request[Any]]] = {
    each.operation: each
    for each in (
        StatusRequest,
        JournalRequest,
        MetricsRequest,
        SavepointRequest,
        StopRequest,
        RescaleRequest,
        HandOverRequest,
        CancelRequest,
    )
}


# -- both ends


class RequestHandler(Protocol):
    """Answers requests for a driver. Its methods raise Refused."""

    def ask(self, request: Request[Any]) -> Message:
        """The answer to a request, or the acceptance of a long request."""

    def answer(self, request_id: str) -> LongAnswer:
        """The progress or result of an accepted request."""

    def wait_fetched(self, seconds: float) -> bool:
        """Wait until clients have fetched all answers; returns False on a timeout."""


class Refused(ForkpointError):
    """A request that the driver refuses."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.detail = ErrorDetail(code, message)


_FIELD = re.compile(r"Object (contains unknown|missing required) field `(.+)`")
_TYPES = {"bool": "a boolean", "str": "a string", "int": "an integer", "object": "an object", "array": "an array"}


_decoders: dict[Any, Callable[[bytes], Any]] = {}


def read(data: bytes, kind: type[T]) -> T:
    """The message in ``data``. Raises DecodeError for any error."""
    if kind not in _decoders:
        _decoders[kind] = json_decoder(kind)
    decode: Callable[[bytes], T] = _decoders[kind]
    try:
        return decode(data)
    except (UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error)) from None


def read_request(data: bytes, kind: type[S]) -> S:
    """The request, or its envelope, in ``data``. Raises Refused with the valid fields."""
    try:
        return read(data, kind)
    except DecodeError as error:
        takes = ", ".join(kind.__struct_fields__)
        raise Refused("bad-request", f"{_problem(error)}. It takes {takes}") from None


def _problem(error: DecodeError) -> str:
    if not isinstance(error, ValidationError):
        return f"the body: Invalid JSON: {error}"
    text, _, path = str(error).partition(" - at `$.")
    if (found := _FIELD.fullmatch(text)) is not None:
        return f"{found[2]}: {'Unknown field' if found[1] == 'contains unknown' else 'Field required'}"
    text = re.sub(r"`(.+?)`", lambda types: " or ".join(_TYPES.get(name, name) for name in types[1].split(" | ")), text)
    return f"{path.removesuffix('`') or 'the body'}: {text}"
