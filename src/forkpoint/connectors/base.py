"""What a source and a sink are. Everything that reads from or writes to the outside world implements these classes.

**A source** is Flink's split model with the driver in charge of positions. In each epoch the driver asks the source's
``SplitEnumerator`` what to read next and gets ``SplitRange`` values; tasks read them with a ``SourceReader``; the
enumerator's ``position`` goes into the epoch's manifest and nowhere else.

*At a crash*: before the manifest is written, the epoch never happened. The next start makes a new enumerator at the
last manifest's position and plans again, perhaps with other cuts. After it is written, the ranges are never planned
again. A task that fails inside an epoch reads the same range again and must find the same elements.

**A sink** is a two-phase commit with the manifest as the commit point. A ``SinkWriter`` stages one subtask's output of
one epoch under a name of its own and describes it in committables; these go into the manifest; then the driver calls
``Sink.commit``, which makes the output visible.

*At a crash*: before the manifest, what was staged is garbage, which ``cleanup`` removes at the next start. Between
manifest and commit, or in the middle of a commit, the next start calls ``commit`` again with the same committables. So
a commit must be idempotent, and must never fail because part of it was done before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.errors import ConfigError
from forkpoint.types import TypeInformation
from forkpoint.types.variables import T, T_co, T_contra

JSON: TypeAlias = Any
"""A value that survives a round trip through JSON: None, bool, int, float, str, list, dict with str keys."""

Elements: TypeAlias = pa.RecordBatch | list[T]
"""A run of elements: columns named as the output type's ``column_names``, or the elements themselves."""


@dataclass(frozen=True)
class SplitRange:
    """A stretch of one split, read by one task in one epoch.

    A split is the unit whose elements have an order of their own: (``piece``, place in the range). Pieces of one split
    may be read by several tasks at once; ``piece`` counts from 0 within the epoch. ``start`` and ``end`` say where the
    range lies, in the source's own terms. ``rows`` is the number of elements, as far as it is known beforehand: a bound
    for balancing work, not a promise. ``info`` is whatever else the reader needs.
    """

    split: str
    piece: int
    start: JSON
    end: JSON
    rows: int | None = None
    info: JSON = None


class SplitEnumerator(ABC):
    """Decides, on the driver, what each epoch reads. Made by ``Source.create_enumerator``; used by one thread."""

    @abstractmethod
    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        """What the next epoch reads: about ``max_rows`` elements at most; nothing if there is nothing now.

        Advances ``position``. Where the source can, it cuts the work into at least ``parallelism_hint`` pieces of about
        the same size. Does not wait for data.
        """

    @property
    @abstractmethod
    def position(self) -> JSON:
        """Where the source is after all planned ranges; ``create_enumerator`` resumes exactly there.

        Stored in every manifest and savepoint: keep it small, and readable by later versions of the program.
        """

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the source is bounded and all of it has been planned."""

    @property
    def finished_splits(self) -> Collection[str]:
        """Splits of which all has been planned, for good: nobody waits for their watermarks any more. They need not be
        told once the source is ``finished``. Default: none.
        """
        return ()

    def pause_splits(self, splits: Collection[str]) -> bool:
        """Plan nothing of these splits until the next call, as their watermarks are ahead of others (watermark alignment).

        Returns whether the source can do that, False by default; if not, it is paused as a whole.
        """
        return False

    @property
    def ignored(self) -> int:
        """How many files it has come across that it will never read, for the run's status. Default: none."""
        return 0

    def stop_at(self, position: JSON) -> None:
        """Plan nothing beyond ``position``, as some enumerator of this source gave it; called before the first ``plan``.

        Everything up to there is planned, and nothing else, whatever the order was in which it was once read. Such a
        source isn't ``finished`` at the stop. Raises ConfigError if the position lies behind this one, or if the source
        doesn't support it, as by default; bounded replay (``--until SAVEPOINT``) is all that needs it.
        """
        raise ConfigError(
            f"{type(self).__qualname__} cannot stop at a savepoint's position (it has no stop_at); give --until a time"
        )

    @property
    def at_stop(self) -> bool:
        """Whether everything up to ``stop_at``'s position has been planned."""
        return False

    def close(self) -> None:  # noqa: B027  (nothing to close is the common case)
        """Let go of connections and files; called once, also after a failure."""


class SourceReader(ABC, Generic[T_co]):
    """Reads ranges, in a task. One reader may be given several ranges, one after the other."""

    @abstractmethod
    def read(self, range: SplitRange, /) -> Iterator[Elements[T_co]]:
        """The elements of a range in their order, in runs of any length. Reading again gives the same elements."""

    def close(self) -> None:
        """Let go of connections and files; called once, also after a failure."""


class Source(ABC, Generic[T_co]):
    """A description of where elements come from, shipped to the tasks (by cloudpickle); it holds no connections."""

    default_limit: ClassVar[int] = 1_000_000
    """How many elements an epoch reads at most, unless the job says otherwise."""

    def output_type(self) -> TypeInformation[T_co] | None:
        """The elements' type; None if it isn't known, in which case readers yield lists of elements."""
        return None

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether the source ends by itself; a job ends when all its sources have."""

    @abstractmethod
    def create_enumerator(self, position: JSON | None, /) -> SplitEnumerator:
        """An enumerator at ``position`` (as some enumerator of this source gave it), or at the start for None."""

    @abstractmethod
    def create_reader(self) -> SourceReader[T_co]:
        """A reader, made in the task that reads."""


class SinkBatch(Protocol[T]):
    """A run of elements as a sink gets it. ``values`` are made from columns when they are first asked for."""

    @property
    def values(self) -> list[T]: ...

    @property
    def table(self) -> pa.RecordBatch | None:
        """The elements as columns, if they still are; named as ``type.column_names``."""

    @property
    def timestamps(self) -> npt.NDArray[np.int64] | None:
        """Event times in ms since 1970, if the stream has them."""

    @property
    def type(self) -> TypeInformation[T] | None:
        """The stream's type, if it is known."""


@dataclass(frozen=True)
class SinkContext:
    """Whose output a writer stages. ``attempt`` is unique among all attempts at this epoch, of this run and others;
    ``generation`` counts the job's runs, and what is staged must be known by it again: see ``Sink.cleanup``."""

    uid: str
    job: str
    epoch: int
    subtask: int
    attempt: str
    generation: int = 0


class SinkWriter(ABC, Generic[T_contra]):
    """Stages the output of one subtask in one epoch. Nothing it writes may be visible before ``Sink.commit``."""

    @abstractmethod
    def write(self, batch: SinkBatch[T_contra], /) -> None:
        """Take elements; they are in the stream's order."""

    @abstractmethod
    def prepare_commit(self) -> list[JSON]:
        """Make everything durable and return what ``Sink.commit`` needs; called once, last. Kept in the manifest."""

    def abort(self) -> None:
        """The task has failed: let go of resources, and remove what was staged as far as possible."""


class Sink(ABC, Generic[T_contra]):
    """A description of where elements go. It is shipped to the tasks (by cloudpickle) and holds no connections."""

    ordered: ClassVar[bool] = True
    """Whether writers want elements in the stream's order; a keyed operator's output costs a sort for that."""

    def for_job(self, job: str) -> Self:
        """The sink as this job has it, where it depends on the job's name; called once, before the job runs."""
        return self

    @property
    def place(self) -> str | None:
        """Where output goes, in words that are the same for the same place. A second job that would write there is refused
        when it starts. None where jobs may share it, as by default."""
        return None

    @abstractmethod
    def create_writer(self, context: SinkContext, /) -> SinkWriter[T_contra]:
        """A writer for one subtask in one epoch; made in the task."""

    def check(self, committables: list[JSON]) -> None:
        """Raise if the driver could not make this visible: what tasks staged must have arrived where it can see it.

        On the driver, before the manifest, so that an epoch that could not be published is not committed either.
        """

    def commit(self, committables: list[JSON], epoch: int) -> None:
        """Make an epoch's output visible. On the driver, after the manifest; idempotent: it may come again after a
        crash, from a newer driver while this one still runs, and after a reader took away what was visible.

        ``committables`` are those of all subtasks, in the order of subtasks, of the attempts the manifest names.
        Publishes all that is there, then raises ``NotFound`` if something is neither staged nor visible any more: it may
        have been published and taken away. Raises ``OutputLost`` if that cannot be.
        """

    def cleanup(self, uid: str, job: str, generation: int) -> None:
        """Remove what runs up to ``generation`` staged; nobody needs it any more.

        On the driver: at each start, once the last manifest's commit has been repeated. Touches only what this sink
        (``uid`` of ``job``) staged, and nothing of a newer run, which may be at work when this one wakes up.
        """
