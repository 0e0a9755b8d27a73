"""Control data that driver and tasks exchange in each epoch."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from forkpoint.checkpoint.states import StateInfo
from forkpoint.decoders import msgpack_decoder
from forkpoint.graph.job import JobGraph
from forkpoint.logs import TaskLogging
from forkpoint.state import Amount, StoreKind, StoreSize
from forkpoint.types.lookup import Program


@dataclass(frozen=True)
class JobSpec:
    """The constants of a run, shipped to every worker once.

    ``local_dir``: the directory of the workers' stores, a cache private to this run. ``known_states``: the restored states, by
    sid, of epoch ``restored_from``. ``inline_bytes`` and ``inline_output_bytes``: the maximum size of a subtask's changes, and
    of a sink's output, for inclusion in the manifest instead of a file. ``several_processes``: whether a host runs its subtasks
    in several processes, any subtask in any process. ``memory_bytes``: how much memory a subtask may take; None for no limit.
    ``program``: the program that defines the values.
    """

    run: str
    job: str
    graph: JobGraph
    storage_url: str
    parallelism: int
    max_parallelism: int
    store: StoreKind
    local_dir: str
    parameters: dict[str, str]
    known_states: Mapping[int, StateInfo]
    inline_bytes: int = 32_000
    inline_output_bytes: int = 100_000
    periodic_watermarks: bool = True
    several_processes: bool = False
    memory_bytes: int | None = None
    logging: TaskLogging = field(default_factory=TaskLogging)
    program: Program = field(default_factory=Program)
    restored_from: int = 0

    @property
    def process_bytes(self) -> int | None:
        """How much memory a process that runs tasks may take; None for no limit."""
        return None if self.memory_bytes is None else self.memory_bytes * (1 if self.several_processes else self.parallelism)

    @property
    def run_id(self) -> str:
        """The run of this layout: ``run`` without the number of the layout."""
        return self.run.rpartition("-")[0]


class SplitStart(msgspec.Struct, frozen=True):
    """A split at the start of an epoch: its watermark, and whether it is idle unless the epoch has elements of it.

    With a watermark generator: whether the generator marked it idle, and the generator's state.
    """

    watermark_ms: int
    idle: bool = False
    marked_idle: bool = False
    generator: bytes | None = None


class EpochContext(msgspec.Struct, frozen=True):
    """One attempt at one epoch. ``previous`` and ``snapshot_subtasks`` concern single subtasks: the driver has them for all
    subtasks, a subtask's task only its own (``divide``), and a task of stage 0 none.

    ``committed``: the epoch that the state starts from. ``previous``: the attempts that the committed manifest accepted, by
    ``"stage-subtask"``, so that a worker that still holds its changes need not read them back. ``splits``: by watermark
    origin (operator id as text), then split. ``watermarks``: by operator uid; ``input_watermarks``: the watermarks of each
    input of operators that combine splits or streams. ``released``: watermark origins that do not hold the watermark back,
    because they ended with this epoch or before, or were silent for too long. ``finished``: the splits that end with this
    epoch or before, by origin. Operators whose origins are all ``ended`` end the epoch with the final watermark; with
    ``drain``, all operators do. ``one_by_one``: the uids of operators with mutable outputs; ``trusted``: the uids of operators
    with outputs in an earlier epoch of this run, all immutable.
    """

    generation: int
    epoch: int
    committed: int
    processing_time_ms: int
    drain: bool
    previous: dict[str, str]
    splits: dict[str, dict[str, SplitStart]]
    watermarks: dict[str, int]
    snapshot_subtasks: list[int]
    released: list[int] = []
    finished: dict[str, list[str]] = {}
    ended: list[int] = []
    input_watermarks: dict[str, list[int]] = {}
    one_by_one: list[str] = []
    trusted: list[str] = []


class SplitProgress(msgspec.Struct, frozen=True):
    """The progress of one piece of a split, sent to every subtask and to the driver.

    ``origin``: the operator that generates the watermark. ``piece``: its number in the split's order. ``generator``: the
    watermark generator's state (for the driver only); ``marked_idle``: whether the generator marked the split idle.
    """

    origin: int
    split: str
    piece: int
    watermark_ms: int
    count: int
    marked_idle: bool = False
    generator: bytes | None = None


class Changes(msgspec.Struct, frozen=True):
    """A subtask's changes of this epoch in one stage: in a file, or inline if they are small. ``grown``: the approximate growth
    of each state, by sid."""

    path: str | None
    inline: bytes | None
    entries: int
    size: int
    checksum: str
    grown: dict[int, Amount] = {}


class Snapshot(msgspec.Struct, frozen=True):
    """A full copy of a subtask's state as of the committed epoch before this one."""

    path: str
    epoch: int
    entries: int
    size: int
    checksum: str


CatchUpKind = Literal["memory", "host", "changes", "rebuild"]


class CatchUp(msgspec.Struct, frozen=True):
    """How a subtask's local store caught up with the committed epoch. ``by``: ``memory`` with changes that the worker still held
    (a cache hit), ``host`` with changes of other processes on the host, ``changes`` with the changes of ``epochs`` epochs from
    the state root, ``rebuild`` from snapshots and later changes. Only the last two read from the state root."""

    subtask: int
    by: CatchUpKind
    epochs: int
    duration_ms: int


class Failure(msgspec.Struct, frozen=True):
    """A failure of a user function or source, reported as a result so that the message arrives intact."""

    kind: str
    message: str


MetricKind = Literal["counter", "meter", "distribution", "gauge"]


class UserMetric(msgspec.Struct, frozen=True, array_like=True):
    """A metric of a user function, in a task's report. ``group``: the names of its groups, joined by dots.

    ``value``: a gauge's value; else the change of the count since the subtask's last report. ``sum``: the change of a
    distribution's sum. ``least`` and ``greatest``: the extremes of all values of a distribution.
    """

    kind: MetricKind
    group: str
    name: str
    value: int | float
    sum: int | float = 0
    least: int | float | None = None
    greatest: int | float | None = None


class Measured(msgspec.Struct, frozen=True, array_like=True):
    """A task's measurements of one operator in an epoch.

    ``busy_us``: the working time of the operator, without operators downstream. ``bytes_in`` and ``bytes_out``: the bytes of
    exchanges, and of columns that a source has read. ``hottest``: the most frequent key of many elements, as text, and about its
    share of them.
    """

    busy_us: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    user: list[UserMetric] = []
    hottest: tuple[str, float] | None = None


class Memory(msgspec.Struct, frozen=True, array_like=True):
    """The memory of a task's process in bytes, without mapped files: before the task, at most, and its limit."""

    process: str
    before: int
    peak: int
    limit: int


class CommitRow(msgspec.Struct):
    """One task's report to the driver, which becomes part of the manifest.

    ``needs_whole_splits``: sources whose watermark a function read in mid-epoch, so that one task must read each split.
    ``mutable``: operators with mutable outputs. ``one_by_one``: the operator whose mutable outputs were found too late, which
    ended the task. ``measured``: by operator uid. ``state_size``: the entries and bytes in the subtask's store. ``counted``:
    the size of each of the subtask's states before the epoch, by sid, if the task has read all of them. ``memory``: if it is
    limited. ``said``: lines of the task's log.
    """

    stage: int
    subtask: int
    attempt: str
    changes: Changes | None = None
    snapshot: Snapshot | None = None
    catch_up: CatchUp | None = None
    states: list[StateInfo] = []
    committables: dict[str, list[Any]] = {}
    progress: list[SplitProgress] = []
    records_in: dict[str, int] = {}
    records_out: dict[str, int] = {}
    late_records_dropped: dict[str, int] = {}
    next_processing_timer_ms: int | None = None
    in_flight: int = 0  # elements that iterations feed back
    needs_whole_splits: list[int] = []
    mutable: list[str] = []
    one_by_one: list[str] = []
    measured: dict[str, Measured] = {}
    state_size: StoreSize | None = None
    counted: Mapping[int, Amount] | None = None
    memory: Memory | None = None
    failure: Failure | None = None
    said: list[str] = []


class SubtaskPart(msgspec.Struct, frozen=True, array_like=True):
    """The part of an epoch's context for one subtask: its accepted attempts, and whether it takes a snapshot."""

    previous: dict[str, str]
    snapshot: bool

    def joined(self, common: EpochContext, subtask: int) -> EpochContext:
        """The context of the subtask's tasks."""
        return msgspec.structs.replace(common, previous=self.previous, snapshot_subtasks=[subtask] if self.snapshot else [])


def divide(context: EpochContext, parallelism: int) -> tuple[EpochContext, list[SubtaskPart]]:
    """Divide a context into the part for every task and the parts for single subtasks: the entire context for every task would
    grow with the square of the number of subtasks."""
    previous: list[dict[str, str]] = [{} for _ in range(parallelism)]
    for name, attempt in context.previous.items():
        previous[int(name.partition("-")[2])][name] = attempt
    snapshots = set(context.snapshot_subtasks)
    parts = [SubtaskPart(accepted, subtask in snapshots) for subtask, accepted in enumerate(previous)]
    return msgspec.structs.replace(context, previous={}, snapshot_subtasks=[]), parts


def encode_context(context: EpochContext) -> str:
    """The context as compact text, which is sent with every task."""
    return base64.b85encode(zlib.compress(_encoder.encode(context), 1)).decode()


def decode_context(text: str) -> EpochContext:
    return _decode_context(zlib.decompress(base64.b85decode(text)))


_encoder = msgspec.msgpack.Encoder()
_decode_context = msgpack_decoder(EpochContext)
encode_part: Callable[[SubtaskPart], bytes] = _encoder.encode
decode_part = msgpack_decoder(SubtaskPart)
encode_commit: Callable[[CommitRow], bytes] = _encoder.encode
decode_commit = msgpack_decoder(CommitRow)
encode_progress: Callable[[list[SplitProgress]], bytes] = _encoder.encode
decode_progress = msgpack_decoder(list[SplitProgress])
