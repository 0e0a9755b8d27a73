"""The manifest of an epoch, and the records of jobs and runs.

Manifest N is the commit of epoch N: `Storage.create` of its file makes the epoch's state, positions and staged output
visible atomically. The state at epoch N is, for each key group, the newest snapshot that manifest N lists and the changes
of every later epoch up to N.
"""

from __future__ import annotations

import base64
import builtins
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from forkpoint.checkpoint.format import Format, Record
from forkpoint.checkpoint.paths import MAX_EPOCH
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import StorageError
from forkpoint.storage.base import check_path


def check_relative(path: str) -> None:
    """Raise ValueError unless it is a valid path on storage."""
    try:
        check_path(path)
    except StorageError as error:
        raise ValueError(str(error)) from None  # as a validation error it gets the file and the field


Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Epoch = Annotated[int, Meta(ge=0, le=MAX_EPOCH)]
Name = Annotated[str, Meta(min_length=1)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Parallelism = Annotated[int, Meta(ge=1, le=32768)]


class SplitState(Record, frozen=True, kw_only=True):
    """The event-time progress of a source's split. With a watermark generator: whether that has marked the split idle, and
    its state, encoded as `Types.ANY()` in base64."""

    watermark_ms: int
    last_active_ms: int
    count: Count
    marked_idle: bool = False
    generator: str | None = None


class LogFile(Record, frozen=True, kw_only=True):
    """A file of a Spark source's private log. `path` is relative to the state root."""

    path: str
    bytes: Count
    checksum: Sha256

    def __post_init__(self) -> None:
        check_relative(self.path)


class SourcePosition(Record, frozen=True, kw_only=True):
    """Where a source resumes. `position` is in the source's own format; `spark_*` is set for Spark's sources: the offset JSON
    and the files of the source's private log by name, the larger ones as files of their own, `spark_log_files`."""

    kind: Literal["native", "spark", "watermarks"]
    position: Any = None
    spark_offset: str | None = None
    spark_log: dict[str, str] = field(default_factory=dict)
    spark_log_files: dict[str, LogFile] = field(default_factory=dict)
    splits: dict[str, SplitState] = field(default_factory=dict)
    finished: bool = False


class OperatorInfo(Record, frozen=True, kw_only=True):
    uid: Name
    name: str
    kind: str
    stage: Count


class KeyGroups(Record, frozen=True, kw_only=True):
    """A subtask's range of key groups, `kg_start` <= kg < `kg_stop`; empty if there are more subtasks than key groups."""

    kg_start: Count
    kg_stop: Count

    def __post_init__(self) -> None:
        if self.kg_start > self.kg_stop:
            raise ValueError(f"key groups {self.kg_start}..{self.kg_stop} run backwards")


class ChangesRef(KeyGroups, frozen=True, kw_only=True):
    """The changes of one subtask in one stage of this epoch: a file, or base64 inside the manifest if small.

    `path` is relative to the state root. `attempt` is unique across all runs, so no two attempts write the same file.
    """

    stage: Count
    subtask: Count
    attempt: Name
    path: str | None = None
    inline: str | None = None
    entries: Count
    bytes: Count
    checksum: Sha256

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.path is None) == (self.inline is None):
            raise ValueError(f"changes of stage {self.stage}, subtask {self.subtask} need either a path or inline data")
        if self.path is not None:
            check_relative(self.path)

    def inline_data(self) -> builtins.bytes | None:
        """The content if it is in the manifest, None if it is in the file at `path`."""
        return None if self.inline is None else base64.b64decode(self.inline, validate=True)


class SnapshotRef(KeyGroups, frozen=True, kw_only=True):
    """The whole state of key groups `kg_start`..`kg_stop` as of `epoch`, even if that has no entries."""

    subtask: Count
    attempt: Name
    epoch: Epoch
    path: str
    entries: Count
    bytes: Count
    checksum: Sha256

    def __post_init__(self) -> None:
        super().__post_init__()
        check_relative(self.path)


class Parent(Record, frozen=True, kw_only=True):
    """What a run started from: nothing, a checkpoint (job, epoch, run) or a savepoint (its id and path at that time)."""

    kind: Literal["none", "checkpoint", "savepoint"] = "none"
    job: str | None = None
    epoch: Epoch | None = None
    run: str | None = None
    savepoint_id: str | None = None
    savepoint_path: str | None = None

    def __post_init__(self) -> None:
        if self.kind == "checkpoint" and None in (self.job, self.epoch, self.run):
            raise ValueError("a checkpoint as parent needs its job, epoch and run")
        if self.kind == "savepoint" and self.savepoint_id is None:
            raise ValueError("a savepoint as parent needs its id")


class EpochOutput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a sink staged for the commit of one epoch, in its own format."""

    epoch: Epoch
    committables: list[Any]


class StateAmount(Record, frozen=True, kw_only=True):
    """About how many entries a state has, and how many bytes their keys and values have."""

    sid: Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
    entries: Count
    bytes: Count


class Manifest(Record, frozen=True, kw_only=True):
    """Everything that epoch `epoch` made durable. `changes` and `sinks` are of this epoch only; `snapshots`, positions,
    watermarks and states are complete as of this epoch. Times are in milliseconds since 1970 UTC.

    `watermarks`: of operators, by uid. `input_watermarks`: of each input, where several streams merge: a source's splits,
    and unions.

    `withheld`: the run is on trial, or stopping with a drain, and its output is not visible yet; `sinks` then accumulates
    until the manifest that ends the trial or the stop, whose commit publishes all of it.

    `unpublished`: of sinks whose output tasks commit, what earlier epochs staged and was not known to be published yet, by uid,
    oldest first. `staged_from`: the first epoch whose staged output `sinks` and `unpublished` name, if it is not this one.

    `incarnation`: a name that all runs of the job have in common, and other jobs of its name don't.

    `amounts`: of each state, also of those that have become empty; None if it is not known.

    `rescaled`: `parallelism` is not what the run was given at its start, but what the job was rescaled to while it ran; runs
    that go on from here keep it."""

    format_version: Literal[1] = 1
    job: Name
    run: Name
    generation: Count
    epoch: Epoch
    kind: Literal["start", "epoch", "end"]
    created_ms: int
    processing_time_ms: int
    parallelism: Parallelism
    max_parallelism: Parallelism
    sources: dict[str, SourcePosition] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    input_watermarks: dict[str, list[int]] = field(default_factory=dict)
    states: list[StateInfo] = field(default_factory=list)
    amounts: list[StateAmount] | None = None
    operators: list[OperatorInfo] = field(default_factory=list)
    changes: list[ChangesRef] = field(default_factory=list)
    snapshots: list[SnapshotRef] = field(default_factory=list)
    sinks: dict[str, list[Any]] = field(default_factory=dict)
    unpublished: dict[str, list[EpochOutput]] = field(default_factory=dict)
    staged_from: Epoch | None = None
    incarnation: str | None = None
    parent: Parent = field(default_factory=Parent)
    drained: bool = False
    withheld: bool = False
    rescaled: bool = False
    label: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def drained_early(self) -> bool:
        """Whether the job was stopped with a drain: all timers and windows fired before the sources ended."""
        read = [p for p in self.sources.values() if p.kind != "watermarks"]
        ended = not self.withheld and bool(read) and all(p.finished for p in read)
        return self.drained and self.kind == "epoch" and not ended

    @property
    def epoch_before(self) -> int | None:
        """The epoch that this one's state builds on; None if it starts empty, or is all in snapshots."""
        if self.kind != "start":
            return self.epoch - 1
        return self.parent.epoch if self.parent.kind == "checkpoint" and self.parent.job == self.job else None

    def __post_init__(self) -> None:
        by_sid: dict[int, StateInfo] = {}
        for state in self.states:
            if (other := by_sid.setdefault(state.sid, state)) is not state:
                raise ValueError(f"sid {state.sid} is used by {other.uid}/{other.name} and by {state.uid}/{state.name}")
        for snapshot in self.snapshots:
            if snapshot.epoch > self.epoch:
                raise ValueError(f"snapshot {snapshot.path} is of epoch {snapshot.epoch}, after epoch {self.epoch}")


class Job(Record, frozen=True, kw_only=True):
    """job.json: the job, and the generation that may commit. Each run increments it, which makes older runs stale."""

    format_version: Literal[1] = 1
    job: Name
    created_ms: int
    generation: Count
    run: str | None = None


class Run(Record, frozen=True, kw_only=True):
    """run.json: one run of a job. `ended_ms`, `outcome` and `reason` are None while it runs, or if it was killed.
    `machine` and `pid`: of its driver. `engine_lost`: it failed because Spark ended; a new driver may go on. `published`: the
    epoch up to which its output is known to be published, whatever its end. `skipped`: the files with records that sinks' systems
    refused, and that were left out of it on request. `records`: the elements that its operators had received (or emitted, if they
    have no input) when it ended, by uid."""

    format_version: Literal[1] = 1
    job: Name
    run: Name
    generation: Count
    parent: Parent = field(default_factory=Parent)
    started_ms: int
    ended_ms: int | None = None
    outcome: Literal["finished", "stopped", "cancelled", "failed", "superseded"] | None = None
    reason: str | None = None
    label: str | None = None
    code_version: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    machine: str | None = None
    pid: Count | None = None
    engine_lost: bool = False
    published: Epoch | None = None
    skipped: list[str] = field(default_factory=list)
    records: dict[str, Count] = field(default_factory=dict)

    @property
    def ended_well(self) -> bool:
        """Whether it ended regularly, so that everything it committed is also published."""
        return self.outcome in ("finished", "stopped", "cancelled") and self.reason is None


MANIFEST = Format("manifest", Manifest, 1)
JOB = Format("job.json", Job, 1)
RUN = Format("run.json", Run, 1)
