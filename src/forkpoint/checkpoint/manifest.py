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
        raise ValueError(str(error)) from None  # msgspec adds the field to a ValueError


Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Epoch = Annotated[int, Meta(ge=0, le=MAX_EPOCH)]
Name = Annotated[str, Meta(min_length=1)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Parallelism = Annotated[int, Meta(ge=1, le=32768)]


class SplitState(Record, frozen=True, kw_only=True):
    """The event-time progress of a source's split. With a watermark generator: whether the generator has marked the split idle,
    and its state, encoded as `Types.ANY()` in base64."""

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
    """The position from which a source resumes. `position` has the source's own format. `spark_*` is set for Spark's sources: the
    offset JSON, and the files of the source's private log by name; larger ones are separate files, in `spark_log_files`."""

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
    """The changes of one subtask in one stage of this epoch: in a file, or, if small, in the manifest as base64. `path` is
    relative to the state root. `attempt` is unique across all runs, so no two attempts write the same file."""

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
        """The content if it is in the manifest; None if it is in the file at `path`."""
        return None if self.inline is None else base64.b64decode(self.inline, validate=True)


class SnapshotRef(KeyGroups, frozen=True, kw_only=True):
    """The entire state of key groups `kg_start`..`kg_stop` as of `epoch`, even if it has no entries."""

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
    """The initial state of a run: none, a checkpoint (job, epoch, run) or a savepoint (its id and path at that time)."""

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
    """A sink's staged output of one epoch, in its own format."""

    epoch: Epoch
    committables: list[Any]


class StateAmount(Record, frozen=True, kw_only=True):
    """The approximate number of a state's entries, and of the bytes of their keys and values."""

    sid: Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
    entries: Count
    bytes: Count


class Manifest(Record, frozen=True, kw_only=True):
    """All data that epoch `epoch` made durable. `changes` and `sinks` are of this epoch only; `snapshots`, positions, watermarks
    and states are complete as of this epoch. Times are in milliseconds since 1970 UTC.

    `watermarks`: of operators, by uid. `input_watermarks`: of each input of a merge of streams: a source's splits, and unions.

    `withheld`: the run is on trial, or stopping with a drain, and its output is not visible yet. `sinks` then accumulates until
    the manifest that ends the trial or the stop, whose commit publishes all of it.

    `unpublished`: for sinks whose output tasks commit, the staged output of earlier epochs that may be unpublished, by uid,
    oldest first. `staged_from`: the first epoch with staged output in `sinks` or `unpublished`, if it is not this one.

    `incarnation`: a name shared by all runs of the job, and by no other job of its name.

    `amounts`: of each state, including empty ones; None if unknown.

    `rescaled`: the job was rescaled to `parallelism` while it ran; runs that continue from here keep it.

    `emptied`: of a run's start, the uids of operators whose saved state did not fit, and that start empty."""

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
    emptied: list[str] = field(default_factory=list)
    label: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def is_final(self) -> bool:
        """Whether this is an epoch whose output may be published: it is never rolled back."""
        return self.kind != "start" and not self.withheld

    @property
    def drained_early(self) -> bool:
        """Whether the job was stopped with a drain: all timers and windows fired before the sources ended."""
        read = [p for p in self.sources.values() if p.kind != "watermarks"]
        ended = not self.withheld and bool(read) and all(p.finished for p in read)
        return self.drained and self.kind == "epoch" and not ended

    @property
    def epoch_before(self) -> int | None:
        """The epoch on whose state this one builds; None if the state starts empty, or is entirely in snapshots."""
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
    """job.json: the job, and the generation that may commit. Each run increments the generation, which makes older runs stale."""

    format_version: Literal[1] = 1
    job: Name
    created_ms: int
    generation: Count
    run: str | None = None


class Run(Record, frozen=True, kw_only=True):
    """run.json: one run of a job. `ended_ms`, `outcome` and `reason` are None while it runs, or if it was killed. `machine` and
    `pid`: of its driver. `engine_lost`: it failed because Spark ended; a new driver may continue. `published`: the epoch up to
    which its output is published. `skipped`: the files with records that sinks' systems refused and that were skipped on request.
    `records`: the number of elements that its operators had received (or emitted, without an input) at its end, by uid.
    `emptied`: the uids of operators whose saved state did not fit, and that started empty."""

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
    emptied: list[str] = field(default_factory=list)

    @property
    def ended_well(self) -> bool:
        """Whether it ended regularly, with all its committed output published."""
        return self.outcome in ("finished", "stopped", "cancelled") and self.reason is None


MANIFEST = Format("manifest", Manifest, 1)
JOB = Format("job.json", Job, 1)
RUN = Format("run.json", Run, 1)
