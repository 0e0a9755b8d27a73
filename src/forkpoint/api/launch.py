"""Job options from outside the program.

Options of `forkpoint run` and other launchers override the program's. Environment variables and forkpoint.toml give defaults,
which the program overrides.
"""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forkpoint.api.configuration import KEYS, apply_configuration
from forkpoint.config_file import JOB, STATE_ROOT_KEY, check_variables, config_file
from forkpoint.errors import ConfigError
from forkpoint.graph.options import JobOptions, RestoreOptions

if TYPE_CHECKING:
    from forkpoint.contract.sink import Sink
    from forkpoint.driver.commit.trial import Trial
    from forkpoint.driver.observe.events import Listener, Steps
    from forkpoint.driver.run.job_driver import JobDriver
    from forkpoint.driver.run.stop import Result
    from forkpoint.driver.start.replay import Until
    from forkpoint.graph.job import JobGraph

PREFIX = "FORKPOINT_JOB__"
_OWN_VARIABLES = {"execution.engine": "FORKPOINT_ENGINE", "spark.master": "SPARK_MASTER"}  # read where they are used
_STATE_ROOT = "execution.checkpointing.dir"
SETTABLE = (*(key for key in KEYS if key != _STATE_ROOT), "spark.master")


@dataclass(frozen=True)
class Launch:
    """A launcher's settings for a program's jobs. Each environment takes the current Launch when it is created.

    ``options`` override the program's; ``state_root`` is the default if the program sets none. ``job_name`` replaces the
    job's name (for a fork). ``restore`` overrides the program's restore options; None keeps them. ``on_driver`` is called
    with the driver before the run and returns a callback for its result or error; ``on_step`` receives progress messages of
    the start. With ``inspect`` nothing runs: it is called with the compiled job, and ProgramStopped ends the program.
    ``until``: where the run stops. ``trial``: the epochs on trial. ``sinks`` replaces the program's sinks by uid. ``steps``
    and ``listeners``: see ``driver.observe.events``. ``generated_uids``: uids are optional even if state outlives the run.
    ``standby``: runs stand by while another run leads their job, and take over when it dies. ``succeeds``: the run that hands
    its job over to this program's run. ``pinned``: the parallelism in ``options`` holds even if the job was rescaled.
    ``predecessors``: the run that the start of each job succeeds (None: no run); for jobs not listed, the newest run at
    preparation. ``force``: a start succeeds the newest run, whichever it is. ``work`` replaces ``JobDriver.run``. ``unnamed``
    numbers the jobs without a name, to keep their names distinct.
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
    standby: bool = False
    succeeds: str | None = None
    pinned: bool = False
    predecessors: Mapping[str, str | None] = field(default_factory=dict)
    force: bool = False
    work: Callable[[JobDriver], Result] | None = None
    unnamed: Iterator[int] = field(default_factory=lambda: itertools.count(1), compare=False)


@dataclass(frozen=True)
class Inspected:
    """A compiled job before it runs. ``state_root``: None if its state would not outlive the process."""

    name: str
    graph: JobGraph
    options: JobOptions
    state_root: str | None


class ProgramStopped(BaseException):  # not an Exception, so that programs do not handle it as a failure
    """Ends a program instead of running its job."""


_of_this_process = [Launch(unnamed=itertools.repeat(1))]  # the first one applies without a launcher


@contextmanager
def launching(launch: Launch) -> Iterator[None]:
    """Make environments created in this block, on any thread, use ``launch``."""
    _of_this_process.append(launch)
    try:
        yield
    finally:
        _of_this_process.pop()


def current_launch() -> Launch:
    """The launch settings for new environments."""
    return _of_this_process[-1]


def is_launched(launch: Launch) -> bool:
    """Whether a program is run by a launcher, such as ``forkpoint run``, and not by ``python``."""
    return launch is not _of_this_process[0]


@dataclass(frozen=True)
class Setting:
    """A setting's value and its origin: "default", "environment", "file" or "flag". ``place``: the variable, or the line."""

    value: Any
    origin: str = "default"
    place: str | None = None


def variable(key: str) -> str:
    """The environment variable of a job option."""
    return _OWN_VARIABLES.get(key) or PREFIX + key.upper().replace(".", "_").replace("-", "_")


def job_settings() -> dict[str, Setting]:
    """The job options of environment variables and forkpoint.toml. ConfigError names the location of an invalid option."""
    check_variables(os.environ)
    file = config_file()
    if _STATE_ROOT in file.job:
        named = file.location(f"{JOB}.{_STATE_ROOT}")
        raise ConfigError(f"{named}: the state root is {STATE_ROOT_KEY} = …, at the top of the file")
    found = {key: Setting(value, "file", file.location(f"{JOB}.{key}")) for key, value in file.job.items()}
    found |= {key: Setting(value, "environment", variable(key)) for key, value in _of_environment()}
    try:
        apply_configuration(JobOptions(), {key: _as_text(setting.value) for key, setting in found.items()})
    except ConfigError as error:
        invalid = max((key for key in found if key in str(error)), key=len, default=None)
        origin = f"{file.path or 'the environment'}, [{JOB}]" if invalid is None else found[invalid].place
        raise ConfigError(f"{origin}: {error}") from None
    return found


def _as_text(value: Any) -> Any:
    """Numbers as text, so that durations need a unit."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _of_environment() -> Iterator[tuple[str, str]]:
    variables = {variable(key): key for key in SETTABLE}
    for name, value in os.environ.items():
        if name in variables and value:
            yield variables[name], value
        elif name.startswith(PREFIX) and value:
            near = difflib.get_close_matches(name, variables, 1)
            hint = f"did you mean {near[0]}?" if near else "see `forkpoint config show`"
            raise ConfigError(f"the environment variable {name} sets no option; {hint}")


def with_defaults(options: JobOptions) -> JobOptions:
    """The options with the defaults of environment variables and forkpoint.toml."""
    settings = job_settings()
    # Variables such as FORKPOINT_ENGINE are read later, after the program has set its options.
    given = {key: s.value for key, s in settings.items() if key not in _OWN_VARIABLES or s.origin == "file"}
    return apply_configuration(options, given) if given else options
