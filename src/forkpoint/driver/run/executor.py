"""The interface of an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.graph.job import JobGraph
from forkpoint.runtime.exchange.control import CatchUp, EpochContext, JobSpec
from forkpoint.types import TypeInformation

OnBatch = Callable[[Any, Mapping[str, SourcePosition]], None]
"""Called with a batch of DataFrame sources, as the engine represents it, and the sources' positions after it."""


class Streams(Protocol):
    """Running DataFrame sources."""

    def stop(self) -> None:
        """Start no further batch."""

    def failure(self) -> BaseException | None:
        """The error that ended the streams, if there was one."""


class Executor(Protocol):
    """Runs the tasks of epochs. One run at a time; ``run_tasks`` may be called while an epoch runs."""

    def start(self, spec: JobSpec) -> None:
        """Make the job known to the workers."""

    def run_epoch(self, ctx: EpochContext, source_tasks: Sequence[bytes], frame: Any = None) -> list[bytes]:
        """Run one epoch as one job and return the commit rows' blobs, those of stage 0 included."""

    def notify(self, ctx: EpochContext) -> None:
        """Tell functions that listen, on all subtasks, that ``ctx.committed`` is complete. Not while an epoch runs."""

    def prepare(self, spec: JobSpec, epoch: int) -> Sequence[CatchUp]:
        """Bring the local stores of a layout that does not run yet to a committed epoch, on the hosts where its subtasks would
        run; returns what was done. Blocks; for another thread than that of the epochs, to which it leaves cores.

        Each call continues from the last one. ``start`` with this spec then finds the stores; they are never required, and may
        be behind. The caller keeps the epoch's files, and those of the epochs since the last call, from being collected:
        raises NotFound if they are gone.
        """

    def discard(self, spec: JobSpec) -> None:
        """Remove what ``prepare`` has built of a layout that will not be started."""

    def run_tasks(self, fn: Callable[[bytes], bytes], args: Sequence[bytes], description: str) -> list[bytes]:
        """Call ``fn`` with each argument, in parallel where the engine can; results in the arguments' order."""

    @property
    def has_other_hosts(self) -> bool:
        """Whether tasks may run on other hosts than the driver's, or in environments unlike the driver's."""

    def run_on_hosts(self, fn: Callable[[bytes], bytes], arg: bytes) -> list[bytes]:
        """Call ``fn`` with ``arg`` at least once on each host that runs tasks; waits until there is one."""

    def start_streams(
        self,
        graph: JobGraph,
        positions: Mapping[str, SourcePosition],
        on_batch: OnBatch,
        stops: Mapping[str, SourcePosition] | None = None,
    ) -> Streams:
        """Start the DataFrame sources at these positions. ``stops``: where each ends, within its first batch; None: nowhere."""

    def staged_frame(self, paths: Sequence[str], type: TypeInformation) -> Any:
        """A DataFrame over Parquet files that sinks of this epoch staged."""

    def interrupt(self) -> None:
        """Make a running epoch fail soon, on a timeout or cancellation. Work that starts later is not affected, and user code
        may ignore an interrupt, so callers repeat it until the epoch has ended."""

    def abandon(self) -> None:
        """Make everything that runs fail soon, including tasks beside epochs."""

    def activity(self) -> str | None:
        """What the running epoch is doing, for people; None if none runs or it is unknown."""

    def close(self) -> None:
        """Release what ``start`` acquired."""
