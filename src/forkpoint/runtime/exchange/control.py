"""What travels between the driver and its tasks in each epoch, apart from elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from forkpoint.checkpoint.states import StateInfo
from forkpoint.graph.job import JobGraph
from forkpoint.state import StoreKind


@dataclass(frozen=True)
class JobSpec:
    """All that stays the same in a run; shipped to every worker once.

    ``local_dir`` is where workers keep their stores: a cache, private to this run. ``known_states`` are those that the run
    restored, by sid.
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
    inline_changes_bytes: int = 20_000
    periodic_watermarks: bool = True


class SplitStart(msgspec.Struct, frozen=True):
    """A split at the start of an epoch: its watermark so far, and whether it is idle unless it gets elements.

    Of one with a watermark generator: whether that has marked it idle, and what the generator keeps.
    """

    watermark_ms: int
    idle: bool = False
    marked_idle: bool = False
    generator: bytes | None = None


class EpochContext(msgspec.Struct, frozen=True):
    """One attempt at one epoch, the same for all its tasks.

    ``committed`` is the epoch that the state starts from. ``previous`` names, by ``"stage-subtask"``, the attempt that
    the committed manifest accepted, so that a worker that still holds its changes need not read them back.
    ``splits`` is keyed by watermark origin (operator id as text), then split. ``watermarks`` holds each operator's
    watermark by uid, ``input_watermarks`` those of what several splits or streams come together in. ``released`` are
    watermark origins that hold nothing back: ended with this epoch or before, or silent for too long. ``finished`` has by
    origin the splits that end with this epoch or before; operators behind nothing but ``ended`` origins end the epoch with
    the final watermark, and all do with ``drain``. ``one_by_one``: the uids of operators with mutable outputs; ``trusted``:
    of those that have had outputs in an earlier epoch of this run, and no mutable ones.
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
    """What one piece of a split brought: sent to every subtask and to the driver.

    ``origin`` is the operator that made the watermark; pieces of a split are in the split's order. ``generator`` is what a
    watermark generator keeps (for the driver alone), ``marked_idle`` whether it has marked the split idle.
    """

    origin: int
    split: str
    piece: int
    watermark_ms: int
    count: int
    marked_idle: bool = False
    generator: bytes | None = None


class Changes(msgspec.Struct, frozen=True):
    """Where one stage's subtask left this epoch's changes: a file, or inline where they are few."""

    path: str | None
    inline: bytes | None
    entries: int
    size: int
    checksum: str


class Snapshot(msgspec.Struct, frozen=True):
    """A whole copy of a subtask's state as of the committed epoch before this one."""

    path: str
    epoch: int
    entries: int
    size: int
    checksum: str


class CatchUp(msgspec.Struct, frozen=True):
    """How a subtask's local store came to the committed epoch. ``by``: ``memory`` where it still had what it wrote itself (a
    cache hit), ``changes`` over the changes of so many epochs, ``rebuild`` from snapshots and the changes behind them."""

    subtask: int
    by: Literal["memory", "changes", "rebuild"]
    epochs: int
    duration_ms: int


class Failure(msgspec.Struct, frozen=True):
    """A user's function or a source failed: reported as a result, so that the message arrives undamaged."""

    kind: str
    message: str
    details: str = ""


class CommitRow(msgspec.Struct, frozen=True):
    """What one task tells the driver at its end; all of them together become the manifest.

    ``needs_whole_splits``: sources whose watermark a function read in mid-epoch, so each split must be read by one task.
    ``mutable``: operators whose outputs turned out to be mutable. ``one_by_one``: one of which that was found too late, so
    that the task ended there.
    """

    stage: int
    subtask: int
    attempt: str
    changes: Changes | None = None
    snapshot: Snapshot | None = None
    catch_up: CatchUp | None = None
    states: list[dict[str, Any]] = []
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
    failure: Failure | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(CommitRow)
_progress_decoder = msgspec.msgpack.Decoder(list[SplitProgress])


def encode_commit(row: CommitRow) -> bytes:
    return _encoder.encode(row)


def decode_commit(blob: bytes) -> CommitRow:
    return _decoder.decode(blob)


def encode_progress(rows: list[SplitProgress]) -> bytes:
    return _encoder.encode(rows)


def decode_progress(blob: bytes) -> list[SplitProgress]:
    return _progress_decoder.decode(blob)
