"""The interfaces of sinks.

A sink is a two-phase commit with the manifest as the commit point. A ``SinkWriter`` stages one subtask's output of one epoch
under a unique name, most of it below the state root (``SinkContext.stage``), and describes it in committables, which go into the
epoch's manifest. Once that is written, the output is made visible: by the driver, which calls ``Sink.commit``; or, where this
means moving data or work for another system, by tasks beside the next epochs, which call the ``Committer`` of a
``CommittingSink`` for one sink's epochs in their order.

After a crash before the manifest is written, staged output is garbage, which ``cleanup`` removes at the next start. A commit
runs never before its epoch has been committed, but perhaps more than once, and beside an earlier attempt at the same commit: a
start repeats whatever may not have been published, tasks are repeated, a driver that was suspended may go on. So a commit must
not fail because part of it was done before, and has to find that out, atomically with its own work, where repeating it would
make output visible twice: ``EpochOutput.epoch`` is for that.
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
    """Identifies a writer. ``attempt`` is unique among all attempts at this epoch, in all runs; ``generation`` counts the job's
    runs, and must be recognizable in staged output: see ``Sink.cleanup``. ``state_root``: its URL. ``inline_bytes``: how much
    output of a writer may become part of the manifest."""

    uid: str
    job: str
    epoch: int
    subtask: int
    attempt: str
    generation: int = 0
    state_root: str = ""
    inline_bytes: int = INLINE_BYTES

    def stage(self, data: bytes) -> JSON:
        """Store a writer's output below the state root, durably; at most once for each writer. Returns what
        ``CommitterContext.staged`` finds it by, for the committable."""
        return stage(self.state_root, self._staging, data, self.inline_bytes)

    def stage_file(self, data: bytes) -> JSON:
        """As ``stage``, but never in the manifest itself, however small: for output that waits, and is named by many of them."""
        return stage_file(self.state_root, self._staging, data)

    @property
    def _staging(self) -> str:
        return JobPaths(self.job).staging(self.epoch, self.uid, f"{self.subtask}-{self.attempt}")


class SinkWriter(ABC, Generic[T_contra]):
    """Stages the output of one subtask in one epoch. Nothing it writes may be visible before ``Sink.commit``."""

    @abstractmethod
    def write(self, batch: SinkBatch[T_contra], /) -> None:
        """Stage elements, which come in the stream's order."""

    @abstractmethod
    def prepare_commit(self) -> list[JSON]:
        """Make everything durable and return what ``Sink.commit`` needs, for the manifest. Called once, last."""

    def abort(self) -> None:
        """Release resources after the task has failed, and remove staged output as far as possible."""


class Sink(ABC, Generic[T_contra]):
    """Describes where elements go. Shipped to the tasks (by cloudpickle), so it holds no connections."""

    ordered: ClassVar[bool] = True
    """Whether writers need elements in the stream's order, for which a keyed operator's output must be sorted."""

    def for_job(self, job: str) -> Self:
        """The sink for this job, if it depends on the job's name; called once, before the job runs."""
        return self

    @property
    def place(self) -> str | None:
        """A unique name of the place where output goes: a second job that would write there is refused at its start. By
        default None: jobs may share it."""
        return None

    @property
    def shared_directory(self) -> str | None:
        """The directory of the file system that tasks and driver both write to, if there is one: all hosts must share it."""
        return None

    def check_type(self, type: TypeInformation[Any]) -> None:
        """Raise ConfigError if elements of this type cannot be written to what is there. Called on the driver at each start,
        before there are any, so that a mistake is found at once. Any other ForkpointError, such as SystemUnavailable, is left
        to the first epoch."""

    @abstractmethod
    def create_writer(self, context: SinkContext, /) -> SinkWriter[T_contra]:
        """A writer for one subtask in one epoch; created in the task."""

    def check(self, committables: list[JSON]) -> None:
        """Raise if the driver cannot see the staged output. Called on the driver before the manifest is written, so that an
        epoch that cannot be published is not committed."""

    def commit(self, committables: list[JSON], epoch: int) -> None:
        """Make an epoch's output visible. Called on the driver after the manifest is written; idempotent: it may be called
        again after a crash, by a newer driver while this one still runs, and after a reader has removed visible output.

        ``committables`` are those of all subtasks, in the order of subtasks, of the attempts in the manifest. Publishes all
        that is staged, then raises ``NotFound`` if anything is neither staged nor visible: it may have been published and
        removed. Raises ``OutputLost`` if that is impossible.
        """

    def cleanup(self, uid: str, job: str, generation: int) -> None:
        """Remove the staged output of runs up to ``generation``.

        Called on the driver at each start, after the last manifest's commit was repeated. Removes only output that this sink
        (``uid`` of ``job``) staged, and none of a newer run, which may be active if this one was suspended.
        """


@dataclass(frozen=True)
class CommitterContext:
    """Identifies a committer. ``group``: see ``CommittingSink.group``. ``incarnation``: of the job, the same in all of its runs;
    another job of its name, say after the state root was deleted, has another. ``state_root``: its URL."""

    uid: str
    job: str
    group: str
    incarnation: str
    state_root: str

    def staged(self, stored: JSON) -> bytes:
        """What ``SinkContext.stage`` has stored. Raises NotFound, and SavepointCorrupt if it is damaged."""
        return staged(self.state_root, stored)


class Committer(ABC):
    """Commits one group's output, in tasks: one after the other, perhaps on several threads. Processes keep it for a while."""

    @abstractmethod
    def commit(self, output: EpochOutput, newest: int) -> None:
        """Make an epoch's output visible, in the order of subtasks, unless it was committed before. If possible, all at once.
        Epochs of a job only ever increase, also across runs.

        ``newest``: the job's newest epoch, as far as the driver knows. More than that cannot have been committed, unless by a
        newer run, or the state root was put back to an earlier copy.

        Raises SystemUnavailable if the other system does not work at the moment; the commit is then repeated until it does.
        Raises OutputRefused for records that it will not take as they are.
        Any other error fails the job's attempt.
        """

    def commit_together(self, outputs: Sequence[EpochOutput], newest: int) -> None:
        """Make the output of several epochs visible, oldest first: see ``CommittingSink.commit_every``. Some of them may have
        been committed before, also together with others. By default one after the other."""
        for output in outputs:
            self.commit(output, newest)

    def commit_accepted(self, output: EpochOutput, newest: int, set_aside: Callable[[pa.Table], None]) -> None:
        """Make an epoch's output visible without the records that the system refuses for what they are, after ``commit`` has
        raised OutputRefused. These are given to ``set_aside``, which makes them durable, before the rest becomes visible: with a
        column ``error`` that says why. Later commits of this output do nothing. By default, it is not supported."""
        raise OutputRefused(
            f"{type(self).__qualname__} cannot tell which records are refused, so they cannot be skipped; correct what refuses "
            "them"
        )

    def close(self) -> None:  # noqa: B027  (nothing to close is common)
        """Release connections; called after a failure, and when there was nothing to commit for a minute."""


class CommittingSink(Sink[T_contra]):
    """A sink whose output is committed by tasks. ``commit`` is not called."""

    @property
    def commit_every(self) -> timedelta | None:
        """How long an epoch's output may wait, so that several epochs' is committed together: for sinks with one group, as no
        group waits for another one's earlier epochs. By default each epoch's is committed by itself, at once."""
        return None

    @abstractmethod
    def create_committer(self, context: CommitterContext, /) -> Committer:
        """A committer for one group; created in the task."""

    def group(self, committable: JSON) -> str:
        """The group of a committable. One task commits the output of a group; those of different groups run side by side. By
        default all are in one group."""
        return ""


def stage(state_root: str, path: str, data: bytes, inline_bytes: int = INLINE_BYTES) -> Any:
    """Store output durably. Returns what ``staged`` finds it by, a JSON value. Output up to ``inline_bytes`` becomes part
    of that, and so of the manifest: a file costs two requests to storage."""
    if len(data) <= inline_bytes:
        return {"inline": base64.b64encode(data).decode("ascii")}
    return stage_file(state_root, path, data)


def stage_file(state_root: str, path: str, data: bytes) -> Any:
    """As ``stage``, however small it is."""
    open_storage(state_root).put(path, data)
    return {"path": path, "bytes": len(data), "checksum": checksum(data)}


def staged(state_root: str, stored: Any) -> bytes:
    """What ``stage`` has stored. Raises NotFound, and SavepointCorrupt if the file is damaged."""
    if "inline" in stored:
        return base64.b64decode(stored["inline"], validate=True)
    data = open_storage(state_root).read(stored["path"])
    return verify(data, stored["checksum"], stored["bytes"], f"{state_root.rstrip('/')}/{stored['path']}")
