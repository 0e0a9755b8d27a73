"""The interfaces of sources.

A source is Flink's split model with the driver in charge of positions. In each epoch the driver asks the source's
``SplitEnumerator`` what to read next and gets ``SplitRange`` values; tasks read them with a ``SourceReader``; the
enumerator's ``position`` is stored in the epoch's manifest, and nowhere else.

After a crash before the manifest is written, the epoch never happened: the next start creates an enumerator at the last
manifest's position and plans again, perhaps with other cuts. Once it is written, the ranges are never planned again. A task
that fails within an epoch reads the same range again, and must find the same elements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.errors import ConfigError
from forkpoint.functions import OutputTag
from forkpoint.types import TypeInformation
from forkpoint.types.variables import T, T_co

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
