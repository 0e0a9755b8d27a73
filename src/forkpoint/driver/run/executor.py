"""The interface of an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.graph.job import JobGraph
from forkpoint.runtime.exchange.control import CatchUp, EpochContext, JobSpec
from forkpoint.types import TypeInformation

OnBatch = Callable[[Any, Mapping[str, SourcePosition]], None]
"""Receives a batch of DataFrame sources, as the engine represents it, and the sources' positions after it."""


class Streams(Protocol):
    """Running DataFrame sources."""

    def stop(self) -> None:
        """Start no further batch."""

    def failure(self) -> BaseException | None:
        """The error that ended the streams, if any."""


class Executor(Protocol):
    """Runs the tasks of epochs. One run at a time; ``run_tasks`` may be called while an epoch runs."""

    def start(self, spec: JobSpec) -> None:
        """Make the job known to the workers."""

    def run_epoch(self, ctx: EpochContext, source_tasks: Sequence[bytes], frame: Any = None) -> list[bytes]:
        """Run one epoch as one job; returns the encoded commit rows of all stages, including stage 0."""

    def notify(self, ctx: EpochContext) -> None:
        """Notify listening functions, on all subtasks, that ``ctx.committed`` is complete. Not while an epoch runs."""

    def prepare(self, spec: JobSpec, epoch: int) -> Sequence[CatchUp]:
        """Catch up the local stores of a layout that does not run yet with a committed epoch, on the hosts where its subtasks
        would run. Blocks; call it on another thread than the epochs', which keep most cores.

        Each call continues from the last one. ``start`` with this spec then finds the stores; it works without them, and with
        stores that are behind. The caller protects the files of this epoch, and of all epochs since the last call, from garbage
        collection. Raises NotFound if they are gone.
        """

    def discard(self, spec: JobSpec) -> None:
        """Remove the stores that ``prepare`` built for a layout that will not start."""

    def run_tasks(self, fn: Callable[[bytes], bytes], args: Sequence[bytes], description: str) -> list[bytes]:
        """Call ``fn`` with each argument, in parallel where the engine can; returns results in the arguments' order."""

    def run_beside_epochs(self, fn: Callable[[bytes], bytes], args: Sequence[bytes], description: str) -> list[bytes]:
        """Like ``run_tasks``, for work that each epoch needs while the next one runs."""

    def run_in_background(self, fn: Callable[[bytes], bytes], args: Sequence[bytes], description: str) -> list[bytes]:
        """Like ``run_tasks``, for large work that no epoch needs, and that should delay none: on one host, one after the other
        in a process of low priority. ``fn`` needs nothing of the program."""

    @property
    def has_other_hosts(self) -> bool:
        """Whether tasks may run on other hosts or in other environments than the driver."""

    def run_on_hosts(self, fn: Callable[[bytes], bytes], arg: bytes) -> list[bytes]:
        """Call ``fn`` with ``arg`` at least once on each host that runs tasks; waits for the first host."""

    def start_streams(
        self,
        graph: JobGraph,
        positions: Mapping[str, SourcePosition],
        on_batch: OnBatch,
        stops: Mapping[str, SourcePosition] | None = None,
    ) -> Streams:
        """Start the DataFrame sources at these positions. ``stops``: the end of each source's first and only batch, if any."""

    def staged_frame(self, paths: Sequence[str], type: TypeInformation) -> Any:
        """A DataFrame over Parquet files that sinks of this epoch staged."""

    def interrupt(self) -> None:
        """Make a running epoch fail soon, on a timeout or cancellation. Work that starts later is not affected, and user code may
        ignore an interrupt, so callers repeat it until the epoch has ended."""

    def abandon(self) -> None:
        """Make all running work fail soon, including tasks outside epochs."""

    def activity(self) -> str | None:
        """The running epoch's current activity, for people; None if no epoch runs or it is unknown."""

    def close(self) -> None:
        """Release what ``start`` acquired."""
