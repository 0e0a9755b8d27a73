"""Recognizes executors that cannot run forkpoint's tasks by Spark's report, and says what to do about it.

Such a task fails before it runs any code of forkpoint, so there is only Spark's text. It only decides whether to restart.
"""

from __future__ import annotations

import re

from forkpoint.errors import ConfigError

_MISSING_MODULE = re.compile(
    r"ModuleNotFoundError: No module named '(forkpoint|pyarrow|numpy|msgspec|cloudpickle|lmdb)\b"
)
_OTHER_PYTHON = ("PYTHON_VERSION_MISMATCH", "Python in worker has different version")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')


_HOST = re.compile(r"\(TID \d+\) \((\S+) executor")


def deployment_error(report: str) -> ConfigError | None:
    """The problem of an executor according to Spark's report of a failed task; None if there is none."""
    found = _problem(report)
    if found is None:
        return None
    host = _HOST.search(report)
    return ConfigError(found if host is None else f"on host {host[1]}, {found}")


def _problem(report: str) -> str | None:
    if (missing := _MISSING_MODULE.search(report)) is not None:
        return (
            f"the executors' Python has no module {missing[1]!r}; install forkpoint there in the same version as here, or ship "
            "an environment that has it (spark.archives) and set PYSPARK_PYTHON to its interpreter"
        )
    if any(sign in report for sign in _OTHER_PYTHON):
        return (
            "the executors run another Python version than the driver; give both the same one (PYSPARK_PYTHON, "
            "PYSPARK_DRIVER_PYTHON)"
        )
    if (program := _NO_PYTHON.search(report)) is not None:
        return (
            f"the executors have no Python at {program[1]!r}; set PYSPARK_PYTHON to one that exists there"
        )
    return None
