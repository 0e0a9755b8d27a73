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


class StatusMessage(Message):
    """The status of a run. Times are milliseconds since 1970 UTC; ``now_ms`` is the driver's clock.

    ``records`` and ``late_records_dropped``: elements by operator uid since the run's last (re)start; ``sources``: the uids of
    sources. ``ignored_files``: by source, the number of files that appeared too late to be read. ``rescaling_to``: the
    parallelism for which stores are being built. ``caught_up``: whether the stores of a run that waits to lead are close to the
    job's epochs. ``doing``: a description of a long epoch or start.
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
    committed, and attempts failed, in all. ``restored_epoch``: what it has (re)started from, at ``restored_ms``."""

    job: str
    run: str
    epochs: list[EpochMessage]
    failures: list[FailureMessage]
    savepoints: list[SavepointMessage]
    committed: int
    failed: int
    restored_epoch: int | None = None
    restored_ms: int | None = None


ErrorCode = Literal["bad-request", "unauthorized", "not-found", "method-not-allowed", "job-ended", "internal"]


class ErrorDetail(Message):
    code: ErrorCode
    message: str


class ErrorMessage(Message):
    """All errors: ``{"error": {"code": …, "message": …}}``."""

    error: ErrorDetail


Operation = Literal["status", "journal", "savepoint", "stop", "rescale", "hand-over", "cancel"]


class MailedRequest(RequestBody):
    """A request as a file below the state root. ``run``: the only run that it is for."""

    run: str
    operation: Operation
    body: dict[str, JsonValue] = Field(default_factory=dict)


class MailedAnswer(Message):
    """Its answer: ``status`` after a status or cancel request, ``journal`` after one for that, ``savepoint`` after one for what
    takes a while, as far as that has come, ``error`` if it was refused."""

    status: StatusMessage | None = None
    journal: JournalMessage | None = None
    savepoint: Answer | None = None
    error: ErrorDetail | None = None

    @property
    def final(self) -> bool:
        """Whether nothing follows."""
        return self.savepoint is None or self.savepoint.status != "IN_PROGRESS"
