"""The interfaces of sinks.

A sink is a two-phase commit with the manifest as the commit point. A ``SinkWriter`` stages one subtask's output of one epoch
under a unique name, usually below the state root (``SinkContext.stage``), and describes it in committables, which go into the
epoch's manifest. Once the manifest is written, the driver publishes the output by calling ``Sink.commit``. If publishing moves
data or burdens another system, tasks do it concurrently with the next epochs: they call the ``Committer`` of a
``CommittingSink`` for the sink's epochs in order.

After a crash before the manifest is written, staged output is garbage, which ``cleanup`` removes at the next start. A commit
never runs before its epoch is committed, but it may run more than once, and concurrently with an earlier attempt: a start
repeats every commit that may be incomplete, Spark repeats tasks, and a suspended driver may resume. So a commit must be
idempotent. Where a repetition would publish output twice, it must detect that atomically with its own work, by
``EpochOutput.epoch``.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Generic, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.checkpoint.format import checksum, verify
from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.contract.source import JSON
from forkpoint.errors import OutputRefused
from forkpoint.storage.base import open_storage
from forkpoint.types import TypeInformation
from forkpoint.types.variables import T, T_contra

INLINE_BYTES = 4096


class SinkBatch(Protocol[T]):
    """A run of elements for a sink. Columns become ``values`` on first access."""

    @property
    def values(self) -> list[T]: ...

    @property
    def table(self) -> pa.RecordBatch | None:
        """The elements as columns, if they come as columns; named as ``type.column_names``."""

    @property
    def timestamps(self) -> npt.NDArray[np.int64] | None:
        """Event times in ms since 1970, if the stream has them."""

    @property
    def type(self) -> TypeInformation[T] | None:
        """The stream's type, if known."""


@dataclass(frozen=True)
class SinkContext:
    """Identifies a writer. ``attempt`` is unique among all attempts at this epoch in all runs. ``generation`` counts the job's
    runs; staged output must reveal it (see ``Sink.cleanup``). ``state_root`` is a URL. ``inline_bytes`` limits a writer's output
    in the manifest."""

    uid: str
    job: str
    epoch: int
    subtask: int
    attempt: str
    generation: int = 0
    state_root: str = ""
    inline_bytes: int = INLINE_BYTES

    def stage(self, data: bytes) -> JSON:
        """Store a writer's output durably below the state root, at most once per writer. Returns a reference for the committable,
        which ``CommitterContext.staged`` resolves."""
        return stage(self.state_root, self._staging, data, self.inline_bytes)

    def stage_file(self, data: bytes) -> JSON:
        """Like ``stage``, but never inline in the manifest: for output that waits, so that many manifests refer to it."""
        return stage_file(self.state_root, self._staging, data)

    @property
    def _staging(self) -> str:
        return JobPaths(self.job).staging(self.epoch, self.uid, f"{self.subtask}-{self.attempt}")


class SinkWriter(ABC, Generic[T_contra]):
    """Stages the output of one subtask in one epoch. Nothing it writes may be visible before ``Sink.commit``."""

    @abstractmethod
    def write(self, batch: SinkBatch[T_contra], /) -> None:
        """Stage elements, in the stream's order."""

    @abstractmethod
    def prepare_commit(self) -> list[JSON]:
        """Make all output durable and return its committables for the manifest. The last call, made once."""

    def abort(self) -> None:
        """Release resources after the task has failed, and remove staged output if possible."""


class Sink(ABC, Generic[T_contra]):
    """Describes where elements go. Shipped to the tasks (by cloudpickle), so it holds no connections."""

    ordered: ClassVar[bool] = True
    """Whether writers need elements in the stream's order. If so, the runtime sorts a keyed operator's output."""

    def for_job(self, job: str) -> Self:
        """The sink for this job, if it depends on the job's name. Called once, before the job runs."""
        return self

    @property
    def place(self) -> str | None:
        """The unique name of the destination. A second job that would write there is refused at its start. Default: None, jobs
        may share the destination."""
        return None

    @property
    def shared_directory(self) -> str | None:
        """The file-system directory that tasks and driver write to, if any: all hosts must share it."""
        return None

    def check_type(self, type: TypeInformation[Any]) -> None:
        """Raise ConfigError if the destination cannot take elements of this type. Called on the driver at each start, so that a
        mistake is found before any element arrives. The first epoch reports any other ForkpointError, such as
        SystemUnavailable."""

    @abstractmethod
    def create_writer(self, context: SinkContext, /) -> SinkWriter[T_contra]:
        """Create a writer for one subtask in one epoch. Called in the task."""

    def check(self, committables: list[JSON]) -> None:
        """Raise if the driver cannot see the staged output. Called on the driver before the manifest is written, so that an
        epoch that cannot be published is not committed."""

    def commit(self, committables: list[JSON], epoch: int) -> None:
        """Publish an epoch's output. Called on the driver after the manifest is written. Must be idempotent: it may be called
        again after a crash, by a newer driver while this one still runs, and after a reader has removed visible output.

        ``committables`` come from all subtasks, in their order, and from the attempts in the manifest. Publishes all
        staged output, then raises ``NotFound`` if some output is neither staged nor visible, because it may have been published
        and removed; raises ``OutputLost`` if that is impossible.
        """

    def begin(self, epoch: int, incarnation: str) -> None:
        """Called on the driver at a start that restores nothing: what earlier runs of the job have not made visible is no part of
        its results. All its epochs are later than ``epoch``. Like ``commit``, it may be called again, also late.
        ``incarnation``: as of CommitterContext."""

    def finish(self, epoch: int, incarnation: str) -> None:
        """Called on the driver after the commit of the epoch with which all input has ended, and again whenever that commit is
        repeated."""

    def cleanup(self, uid: str, job: str, generation: int) -> None:
        """Remove the staged output of runs up to ``generation``.

        Called on the driver at each start, after the last manifest's commit was repeated. Removes only output that this sink
        (``uid`` of ``job``) staged, never that of a newer run, which may be active if this one was suspended.
        """


@dataclass(frozen=True)
class CommitterContext:
    """Identifies a committer. ``group``: see ``CommittingSink.group``. ``incarnation`` is the same in all runs of the job; a new
    job of the same name, for example after the state root was deleted, has another. ``state_root`` is a URL."""

    uid: str
    job: str
    group: str
    incarnation: str
    state_root: str

    def staged(self, stored: JSON) -> bytes:
        """The data that ``SinkContext.stage`` stored. Raises NotFound, or SavepointCorrupt if it is damaged."""
        return staged(self.state_root, stored)


class Committer(ABC):
    """Commits one group's output in tasks: one call at a time, possibly on several threads. Processes reuse it for a while."""

    def pre_commit(self, output: EpochOutput) -> None:  # noqa: B027  (most systems have nothing to prepare)
        """Send an epoch's output, invisibly, while the driver commits the epoch; only for a sink with ``pre_commits``.

        ``commit`` of the same output makes it visible. If ``commit`` of other output or ``close`` follows instead, the epoch has
        failed, and what was sent must never become visible. After an error, ``close`` and then ``commit`` follow."""

    @abstractmethod
    def commit(self, output: EpochOutput, newest: int) -> None:
        """Publish an epoch's output in the order of subtasks, atomically if possible, unless it was committed before. The epochs
        of a job only ever increase, also across runs.

        ``newest`` is the job's newest epoch that the driver knows. A later epoch can have been committed only by a newer run, or
        if the state root was restored from an earlier copy.

        Raises SystemUnavailable if the external system is unavailable; the commit is then retried until it succeeds.
        Raises OutputRefused for records that the system rejects as they are.
        Any other error fails the job's attempt.
        """

    def commit_together(self, outputs: Sequence[EpochOutput], newest: int) -> None:
        """Publish the output of several epochs, oldest first: see ``CommittingSink.commit_every``. Some of them may have been
        committed before, alone or together. By default commits one epoch after the other."""
        for output in outputs:
            self.commit(output, newest)

    def commit_accepted(self, output: EpochOutput, newest: int, set_aside: Callable[[pa.Table], None]) -> None:
        """Publish an epoch's output without the records that the system rejects, after ``commit`` raised OutputRefused. First
        passes the rejected records, with the reason in a column ``error``, to ``set_aside``, which makes them durable. Later
        commits of this output do nothing. Not supported by default."""
        raise OutputRefused(
            f"{type(self).__qualname__} cannot tell which records are refused, so they cannot be skipped; correct what refuses "
            "them"
        )

    def close(self) -> None:  # noqa: B027  (nothing to close is common)
        """Release connections. Called after a failure, and after a minute without commits."""


class CommittingSink(Sink[T_contra]):
    """A sink whose output is committed by tasks. ``commit`` is not called."""

    pre_commits: ClassVar[bool] = False
    """Whether committers have a ``pre_commit``. It is called for epochs whose output would be published at once, by committers on
    the driver's host."""

    @property
    def commit_every(self) -> timedelta | None:
        """How long an epoch's output may wait so that several epochs are committed together. Only for sinks with one group,
        because groups do not wait for each other's earlier epochs. Default: None, each epoch is committed at once."""
        return None

    @abstractmethod
    def create_committer(self, context: CommitterContext, /) -> Committer:
        """Create a committer for one group. Called in the task."""

    def group(self, committable: JSON) -> str:
        """The group of a committable. One task commits the output of a group; groups are committed concurrently. Default: one
        group."""
        return ""


def stage(state_root: str, path: str, data: bytes, inline_bytes: int = INLINE_BYTES) -> Any:
    """Store output durably. Returns a reference for ``staged``, a JSON value. Output up to ``inline_bytes`` is part of the
    reference, and thus of the manifest, because a file costs two storage requests."""
    if len(data) <= inline_bytes:
        return {"inline": base64.b64encode(data).decode("ascii")}
    return stage_file(state_root, path, data)


def stage_file(state_root: str, path: str, data: bytes) -> Any:
    """Like ``stage``, but always in a file."""
    open_storage(state_root).put(path, data)
    return {"path": path, "bytes": len(data), "checksum": checksum(data)}


def staged(state_root: str, stored: Any) -> bytes:
    """The data that ``stage`` stored. Raises NotFound, or SavepointCorrupt if the file is damaged."""
    if "inline" in stored:
        return base64.b64decode(stored["inline"], validate=True)
    data = open_storage(state_root).read(stored["path"])
    return verify(data, stored["checksum"], stored["bytes"], f"{state_root.rstrip('/')}/{stored['path']}")
