"""The interfaces of sources and sinks.

**A source** is Flink's split model with the driver in charge of positions. In each epoch the driver asks the source's
``SplitEnumerator`` what to read next and gets ``SplitRange`` values; tasks read them with a ``SourceReader``; the
enumerator's ``position`` is stored in the epoch's manifest, and nowhere else.

*After a crash* before the manifest is written, the epoch never happened: the next start creates an enumerator at the last
manifest's position and plans again, perhaps with other cuts. Once it is written, the ranges are never planned again. A task
that fails within an epoch reads the same range again, and must find the same elements.

**A sink** is a two-phase commit with the manifest as the commit point. A ``SinkWriter`` stages one subtask's output of
one epoch under a unique name and describes it in committables; these go into the manifest; then the driver calls
``Sink.commit``, which makes the output visible.

*After a crash* before the manifest is written, staged output is garbage, which ``cleanup`` removes at the next start. After
a crash between manifest and commit, or during a commit, the next start calls ``commit`` again with the same committables. So
a commit must be idempotent, and must not fail because part of it was done before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.connectors.staging import INLINE_BYTES, stage, stage_file
from forkpoint.errors import ConfigError
from forkpoint.functions import OutputTag
from forkpoint.types import TypeInformation
from forkpoint.types.variables import T, T_co, T_contra

JSON: TypeAlias = Any
"""A value that survives a round trip through JSON: None, bool, int, float, str, list, dict with str keys."""

Elements: TypeAlias = pa.RecordBatch | list[T]
"""A run of elements: columns named as the output type's ``column_names``, or the elements themselves."""


@dataclass(frozen=True)
class SplitRange:
    """A range of one split, read by one task in one epoch.

    A split is a unit of order: its elements are ordered by (``piece``, place in the range). Several tasks may read pieces of
    one split at once; ``piece`` counts from 0 within the epoch. ``start`` and ``end`` delimit the range in the source's own
    terms. ``rows``: the number of elements if known, else an estimate, for balancing. ``info``: anything else the reader needs.
    """

    split: str
    piece: int
    start: JSON
    end: JSON
    rows: int | None = None
    info: JSON = None


@dataclass(frozen=True)
class Backlog:
    """How much a source knows of and has not planned yet, in elements or bytes. ``files``: in how many files that is, also
    partly read ones; None if it is not in files."""

    amount: int
    unit: Literal["elements", "bytes"] = "elements"
    files: int | None = None


class SplitEnumerator(ABC):
    """Decides, on the driver, what each epoch reads. Created by ``Source.create_enumerator``; used by one thread."""

    @abstractmethod
    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        """Plan the next epoch: about ``max_rows`` elements at most, or none if there are none now. Does not wait for data.

        Advances ``position``. If possible, divides the work into at least ``parallelism_hint`` pieces of similar size. An empty
        range announces a split that has no elements yet, so that its watermark counts.
        """

    @property
    @abstractmethod
    def position(self) -> JSON:
        """The position after all planned ranges, from which ``create_enumerator`` resumes.

        Stored in every manifest and savepoint: keep it small, and readable by later versions of the program.
        """

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the source is bounded and has been planned completely."""

    @property
    def finished_splits(self) -> Collection[str]:
        """Splits that have been planned completely, whose watermarks no longer hold others back. Default: none; not needed
        once the source is ``finished``."""
        return ()

    def pause_splits(self, splits: Collection[str]) -> bool:
        """Plan nothing of these splits until the next call: their watermarks are ahead of others (watermark alignment).

        Returns whether the source can do so, by default False; if not, it is paused as a whole.
        """
        return False

    def backlog(self) -> Backlog | None:
        """What it knows of and has not planned yet, for the job's metrics; None if that is unknown. Asked once for each epoch, so
        it sends no request to the system that is read."""
        return None

    @property
    def ignored(self) -> int:
        """How many files it found that it will never read, for the run's status. Default: none."""
        return 0

    @property
    def problem(self) -> str | None:
        """Why there is nothing to read for now, if that is a fault, for the run's status. Default: none is known."""
        return None

    def stop_at(self, position: JSON) -> None:
        """Plan everything up to ``position``, which an enumerator of this source returned, and nothing else, in any order.

        Called before the first ``plan``, for bounded replay (``--until SAVEPOINT``). A source at the stop is not
        ``finished``. Raises ConfigError if the position has been passed, or, by default, as it is not supported.
        """
        raise ConfigError(
            f"{type(self).__qualname__} cannot stop at a savepoint's position (it has no stop_at); give --until a time"
        )

    @property
    def at_stop(self) -> bool:
        """Whether everything up to ``stop_at``'s position has been planned."""
        return False

    def confirm(self) -> None:  # noqa: B027  (most systems cannot replace what they have given)
        """Raise InputLost if what an epoch has just read may not be what was planned: the system has replaced what goes by that
        name. Called before the commit of each epoch for which anything was planned; may wait for the system's answer."""

    def committed(self, position: JSON) -> None:  # noqa: B027  (most systems don't ask)
        """An epoch with this position has been committed, and will not be taken back, as those of a trial may be: the system that
        is read may be told. Does not wait for it, and does not fail."""

    def close(self) -> None:  # noqa: B027  (nothing to close is the common case)
        """Release connections and files; called once, also after a failure."""


@dataclass(frozen=True)
class SourceContext:
    """Identifies a source in its job. ``state_root``: its URL."""

    uid: str
    job: str
    state_root: str


@dataclass(frozen=True)
class SideElements(Generic[T_co]):
    """Elements that a source sends to a side output. ``before``: for each, in order, the index of the element of the main output
    that it comes before; their number for those after the last one. ``timestamps``: as in a ``SourceBatch``."""

    tag: OutputTag[T_co]
    elements: list[T_co]
    before: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class SourceBatch(Generic[T_co]):
    """A run of elements, and what their source knows of them.

    ``timestamps``: event times in ms since 1970, ``MIN_WATERMARK`` for an element without one, which a strategy's timestamp
    assigner replaces. ``sides``: elements for side outputs, each of which ``Source.side_outputs`` names.
    """

    elements: Elements[T_co]
    timestamps: npt.NDArray[np.int64] | None = None
    sides: Sequence[SideElements[Any]] = ()


@dataclass(frozen=True)
class ReaderContext:
    """What a reader reads for: the source's uid, and the epoch's processing time, which is the same in all attempts."""

    uid: str
    processing_time_ms: int


class SourceReader(ABC, Generic[T_co]):
    """Reads ranges, in a task: possibly several, one after the other."""

    def open(self, context: ReaderContext) -> None:
        """Called once, before the first ``read``."""

    @abstractmethod
    def read(self, range: SplitRange, /) -> Iterator[Elements[T_co] | SourceBatch[T_co]]:
        """The elements of a range in order, in runs of any length. Reading it again yields the same elements."""

    def close(self) -> None:
        """Release connections and files; called once, also after a failure."""


class Source(ABC, Generic[T_co]):
    """Describes where elements come from. Shipped to the tasks (by cloudpickle), so it holds no connections."""

    default_limit: ClassVar[int] = 1_000_000
    """How many elements an epoch reads at most, unless the job sets a limit."""
    holds_elements: ClassVar[bool] = False
    """Whether the elements are part of the program, so that sending the source takes as long as they are many."""

    def output_type(self) -> TypeInformation[T_co] | None:
        """The elements' type; None if it is unknown, in which case readers yield lists of elements."""
        return None

    def for_job(self, context: SourceContext) -> Self:
        """The source for this place in a job, if it depends on that; called once, before the job runs."""
        return self

    @property
    def side_outputs(self) -> Collection[OutputTag[Any]]:
        """The side outputs that its readers send elements to, each of which the job must read. Default: none."""
        return ()

    def discard(self) -> None:
        """The job has ended and can never go on, as it had no state root: remove what the system keeps for it. Called on the
        driver, of the source that ``for_job`` returned; does not fail."""

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether the source ends; a job ends when all its sources have."""

    @abstractmethod
    def create_enumerator(self, position: JSON | None, /) -> SplitEnumerator:
        """An enumerator at ``position``, which an enumerator of this source returned, or at the start for None."""

    @abstractmethod
    def create_reader(self) -> SourceReader[T_co]:
        """A reader, created in the task that reads."""


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
