"""How a program is launched: what its surroundings lay over its own options, and how its environments learn of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forkpoint.graph.options import JobOptions, RestoreOptions

if TYPE_CHECKING:
    from forkpoint.connectors import Sink
    from forkpoint.driver.events import Listener, Steps
    from forkpoint.driver.job_driver import JobDriver, Result
    from forkpoint.driver.replay import Until
    from forkpoint.driver.trial import Trial
    from forkpoint.graph.job import JobGraph


@dataclass(frozen=True)
class Launch:
    """What the surroundings of a program say about how its jobs run; an environment carries it from its creation on.

    ``options`` are laid over the program's own; ``state_root`` counts where the program sets none. ``job_name`` renames the
    job (a fork). ``restore``: what ``execute()`` restores, whatever the program itself asks for; None leaves that to it.
    ``on_driver`` is called with the driver before the run begins, and gives back what to call at its end, with the result or
    the error; ``on_step`` is told in words what the start has come to. With ``inspect`` nothing is run: it is called with the
    compiled job, and the program ends there by ProgramStopped. ``until``: where the run stops by itself. ``trial``: how many
    epochs show that it works. ``sinks`` puts other sinks, by uid, in the place of the program's. ``steps`` and ``listeners``
    are told what happens in the run (see ``driver.events``). ``generated_uids``: operators may do without a uid, also where
    their state outlives the run. ``unnamed`` counts the jobs that the program gives no name, so that each has its own.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    state_root: str | None = None
    job_name: str | None = None
    restore: RestoreOptions | None = None
    on_driver: Callable[[JobDriver], Callable[[Result | BaseException], None]] | None = None
    on_step: Callable[[str], None] | None = None
    steps: Steps | None = None
    listeners: Sequence[Listener] = ()
    inspect: Callable[[Inspected], None] | None = None
    until: Until | None = None
    trial: Trial | None = None
    sinks: Callable[[str], Sink] | None = None
    generated_uids: bool = False
    unnamed: Iterator[int] = field(default_factory=lambda: itertools.count(1), compare=False)


@dataclass(frozen=True)
class Inspected:
    """A program's job as it would be run. ``state_root``: None where its state would live as long as the process."""

    name: str
    graph: JobGraph
    options: JobOptions
    state_root: str | None


class ProgramStopped(BaseException):  # no Exception, so that no program takes it for a failure of its own
    """Ends a program where it would have run its job."""


_of_this_process = [Launch(unnamed=itertools.repeat(1))]  # of a program that nobody launched; then that of its runner


@contextmanager
def launching(launch: Launch) -> Iterator[None]:
    """Environments that are made in here, on whatever thread, carry ``launch``. For whoever runs a program in this process."""
    _of_this_process.append(launch)
    try:
        yield
    finally:
        _of_this_process.pop()


def current_launch() -> Launch:
    """What a new environment carries."""
    return _of_this_process[-1]
