"""The interfaces of sources.

A source is Flink's split model with the driver in charge of positions. In each epoch the driver asks the source's
``SplitEnumerator`` for the next ``SplitRange`` values, tasks read them with a ``SourceReader``, and the driver stores the
enumerator's ``position`` in the epoch's manifest and nowhere else.

After a crash before the manifest is written, the epoch never happened: the next start creates an enumerator at the last
manifest's position and plans again, perhaps with other ranges. Once it is written, these ranges are never planned again. If a
task fails within an epoch, its retry reads the same range and must find the same elements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.errors import ConfigError
from forkpoint.functions import OutputTag
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.records import RecordType
from forkpoint.types.variables import T, T_co

JSON: TypeAlias = Any
"""A value that survives a round trip through JSON: None, bool, int, float, str, list, dict with str keys."""

Elements: TypeAlias = pa.RecordBatch | list[T]
"""A run of elements: columns named as the output type's ``column_names``, or the elements themselves."""


@dataclass(frozen=True)
class SplitRange:
    """A range of one split, read by one task in one epoch.

    A split is a unit of order: its elements are ordered by ``piece``, then by position in the range. Several tasks may read
    pieces of one split concurrently; ``piece`` counts from 0 within the epoch. ``start`` and ``end`` delimit the range in the
    source's own terms. ``rows`` is the number of elements, exact or estimated, for load balancing. ``info``: other reader data.
    """

    split: str
    piece: int
    start: JSON
    end: JSON
    rows: int | None = None
    info: JSON = None


@dataclass(frozen=True)
class Backlog:
    """The amount of known input that is not planned yet, in elements or bytes. ``files`` counts the files with such input,
    including partly read ones; None if the input is not in files."""

    amount: int
    unit: Literal["elements", "bytes"] = "elements"
    files: int | None = None


class SplitEnumerator(ABC):
    """Decides, on the driver, what each epoch reads. Created by ``Source.create_enumerator``; used by one thread."""

    @abstractmethod
    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        """Plan the next epoch: at most about ``max_rows`` elements, none if there are none now. Does not wait for data.

        Advances ``position``. If possible, divides the work into at least ``parallelism_hint`` pieces of similar size. An empty
        range announces a split without elements so far, so that its watermark counts.
        """

    @property
    @abstractmethod
    def position(self) -> JSON:
        """The position after all planned ranges, from which ``create_enumerator`` resumes.

        Every manifest and savepoint stores it: keep it small, and readable by later versions of the program.
        """

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the source is bounded and has been planned completely."""

    @property
    def finished_splits(self) -> Collection[str]:
        """Completely planned splits, whose watermarks no longer hold others back. Default: none. Not needed once the source is
        ``finished``."""
        return ()

    def on_input(self, wake: Callable[[], None]) -> None:  # noqa: B027  (without it, the driver asks five times a second)
        """Call ``wake``, from any thread, when there is input that ``plan`` has not seen. An idle job then plans at once.

        Called once, before the first ``plan``. ``wake`` returns at once, and may be called at any time, also needlessly.
        """

    def pause_splits(self, splits: Collection[str]) -> bool:
        """Plan nothing of these splits until the next call, because their watermarks are ahead of others (watermark alignment).

        Returns whether the source supports this, by default False; otherwise the runtime pauses the whole source.
        """
        return False

    def backlog(self) -> Backlog | None:
        """The input that is known but not planned, for the job's metrics; None if unknown. Called in each epoch, so it must send
        no request to the external system."""
        return None

    @property
    def ignored(self) -> int:
        """The number of files found that will never be read, for the run's status. Default: 0."""
        return 0

    @property
    def problem(self) -> str | None:
        """The fault because of which there is nothing to read now, for the run's status. Default: None."""
        return None

    def stop_at(self, position: JSON) -> None:
        """Plan everything up to ``position``, which an enumerator of this source returned, and nothing else, in any order.

        Called before the first ``plan``, for bounded replay (``--until SAVEPOINT``). A source at the stop is not
        ``finished``. Raises ConfigError if the position has been passed. The default raises it because replay is not supported.
        """
        raise ConfigError(
            f"{type(self).__qualname__} cannot stop at a savepoint's position (it has no stop_at); give --until a time"
        )

    @property
    def at_stop(self) -> bool:
        """Whether everything up to ``stop_at``'s position has been planned."""
        return False

    def confirm(self) -> None:  # noqa: B027  (most systems cannot replace what they have given)
        """Raise InputLost if the epoch may have read other data than planned, because the system has replaced the data under that
        name. Called before the commit of each epoch that planned ranges; may wait for the system's answer."""

    def committed(self, position: JSON) -> None:  # noqa: B027  (most systems don't ask)
        """Acknowledge this position to the external system: its epoch is committed and, unlike a trial's, will not be rolled
        back. Must neither wait nor fail."""

    def close(self) -> None:  # noqa: B027  (nothing to close is the common case)
        """Release connections and files. Called once, also after a failure."""


@dataclass(frozen=True)
class SourceContext:
    """Identifies a source in its job. ``state_root`` is a URL."""

    uid: str
    job: str
    state_root: str


@dataclass(frozen=True)
class SideElements(Generic[T_co]):
    """Elements that a source sends to a side output. ``before`` gives, for each of them in order, the index of the main output's
    element that follows it, or the number of main elements if none does. ``timestamps``: as in a ``SourceBatch``."""

    tag: OutputTag[T_co]
    elements: list[T_co]
    before: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class SourceBatch(Generic[T_co]):
    """A run of elements with their metadata.

    ``timestamps``: event times in ms since 1970, ``MIN_WATERMARK`` for an element without one; a strategy's timestamp assigner
    replaces them. ``sides``: elements for side outputs, all listed in ``Source.side_outputs``.
    """

    elements: Elements[T_co]
    timestamps: npt.NDArray[np.int64] | None = None
    sides: Sequence[SideElements[Any]] = ()


@dataclass(frozen=True)
class ReaderContext:
    """The source's uid, and the epoch's processing time, which is the same in all attempts."""

    uid: str
    processing_time_ms: int


class SourceReader(ABC, Generic[T_co]):
    """Reads ranges in a task, one after the other."""

    def open(self, context: ReaderContext) -> None:
        """Called once, before the first ``read``."""

    @abstractmethod
    def read(self, range: SplitRange, /) -> Iterator[Elements[T_co] | SourceBatch[T_co]]:
        """The elements of a range in order, in runs of any length. Reading it again yields the same elements."""

    def read_together(
        self, ranges: Sequence[SplitRange], /
    ) -> Iterator[tuple[Sequence[tuple[SplitRange, int]], Elements[T_co] | SourceBatch[T_co]]]:
        """The elements of short ranges of several splits, in the order of the ranges. Each run has its ranges, with the number of
        elements of each; a run with side outputs has one range.

        The default reads one range after the other. A reader that can read them at less cost at once overrides it.
        """
        for range in ranges:
            for run in self.read(range):
                yield [(range, len(run.elements if isinstance(run, SourceBatch) else run))], run

    def close(self) -> None:
        """Release connections and files. Called once, also after a failure."""


class Source(ABC, Generic[T_co]):
    """Describes where elements come from. Shipped to the tasks (by cloudpickle), so it holds no connections."""

    default_limit: ClassVar[int] = 1_000_000
    """The maximum number of elements in an epoch, unless the job sets a limit."""
    holds_elements: ClassVar[bool] = False
    """Whether the program contains the elements, so that shipping the source ships them all."""

    def output_type(self) -> TypeInformation[T_co] | None:
        """The elements' type; None if it is unknown, in which case readers yield lists of elements."""
        return None

    def projected(self, type: RecordType) -> Source[Any] | None:
        """The source with fewer fields in its elements, because the job uses no others: ``type`` has some of the fields of
        ``output_type()``. None, the default, if reading them saves nothing, or if what it reads would no longer be the same.
        """
        return None

    def for_job(self, context: SourceContext) -> Self:
        """The source for this job and uid, if it depends on them. Called once, before the job runs."""
        return self

    @property
    def side_outputs(self) -> Collection[OutputTag[Any]]:
        """The side outputs that the readers send elements to. The job must read all of them. Default: none."""
        return ()

    def discard(self) -> None:
        """Remove what the external system keeps for the job: it has ended and can never resume, because it had no state root.
        Called on the driver, on the source that ``for_job`` returned. Must not fail."""

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether the source ends. A job ends when all its sources have ended."""

    @abstractmethod
    def create_enumerator(self, position: JSON | None, /) -> SplitEnumerator:
        """An enumerator at ``position``, which an enumerator of this source returned, or at the start for None."""

    @abstractmethod
    def create_reader(self) -> SourceReader[T_co]:
        """Create a reader. Called in the task that reads."""
