"""Job options from outside of the program: environment variables, and forkpoint.toml. The program's own take precedence."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forkpoint.api.configuration import KEYS, apply_configuration
from forkpoint.config_file import JOB, STATE_ROOT_KEY, check_variables, config_file
from forkpoint.errors import ConfigError
from forkpoint.graph.options import JobOptions

PREFIX = "FORKPOINT_JOB__"
_OWN_VARIABLES = {"execution.engine": "FORKPOINT_ENGINE", "spark.master": "SPARK_MASTER"}  # read where they are used
_STATE_ROOT = "execution.checkpointing.dir"
SETTABLE = (*(key for key in KEYS if key != _STATE_ROOT), "spark.master")


@dataclass(frozen=True)
class Setting:
    """A setting's value, and where it comes from: "default", "environment", "file" or "flag", and the variable or place."""

    value: Any
    origin: str = "default"
    place: str | None = None


def variable(key: str) -> str:
    """The environment variable of a job option."""
    return _OWN_VARIABLES.get(key) or PREFIX + key.upper().replace(".", "_").replace("-", "_")


def job_settings() -> dict[str, Setting]:
    """The job options that the environment or the file gives. Raises ConfigError, with the place of what is wrong."""
    check_variables(os.environ)
    file = config_file()
    if _STATE_ROOT in file.job:
        named = file.place(f"{JOB}.{_STATE_ROOT}")
        raise ConfigError(f"{named}: the state root is {STATE_ROOT_KEY} = …, at the top of the file")
    found = {key: Setting(value, "file", file.place(f"{JOB}.{key}")) for key, value in file.job.items()}
    found |= {key: Setting(value, "environment", variable(key)) for key, value in _of_environment()}
    try:
        apply_configuration(JobOptions(), {key: _as_text(setting.value) for key, setting in found.items()})
    except ConfigError as error:
        wrong = max((key for key in found if key in str(error)), key=len, default=None)
        place = f"{file.path or 'the environment'}, [{JOB}]" if wrong is None else found[wrong].place
        raise ConfigError(f"{place}: {error}") from None
    return found


def _as_text(value: Any) -> Any:
    """A number as in the program's text, where durations need a unit."""
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
    """The options with those from outside."""
    settings = job_settings()
    # Where an option has a variable of its own, that is looked at after the program has set its options.
    given = {key: s.value for key, s in settings.items() if key not in _OWN_VARIABLES or s.origin == "file"}
    return apply_configuration(options, given) if given else options
