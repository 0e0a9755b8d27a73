"""Sinks whose output is committed by tasks: where making it visible means moving data, or work for another system.

Writers stage output, most of them below the state root (``SinkContext.stage``), and describe it in the epoch's manifest. After
that has been written, tasks commit it beside the next epochs; what one sink has, in the order of epochs. So a commit runs

- never before its epoch has been committed;
- perhaps more than once, and beside an earlier attempt at the same commit: tasks are repeated, a driver that was suspended may
  go on, and a start repeats whatever may not have been published. So each has to find out, atomically with its own work,
  whether that was done before: ``EpochOutput.epoch`` is for that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.base import JSON, Sink
from forkpoint.connectors.staging import staged
from forkpoint.errors import OutputRefused
from forkpoint.types.variables import T_contra


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
