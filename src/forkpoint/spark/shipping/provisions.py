"""Provides executors with the driver's virtual environment and the environment variables that the user names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark import SparkConf

from forkpoint.errors import ConfigError
from forkpoint.spark.exchange import has_several_hosts
from forkpoint.spark.shipping.archive import packed_environment
from forkpoint.spark.shipping.environment import ENVIRONMENT, PYTHON

_VARIABLE = "spark.executorEnv."
_ARCHIVES, _EXECUTORS_PYTHON, _REDACTED = "spark.archives", "spark.pyspark.python", "spark.redaction.regex"
_DEFAULT_REDACTED = "(?i)secret|password|token|access[.]?key"  # Spark's


@dataclass(frozen=True)
class Provisions:
    """``ship_env`` ships the environment. ``pass_env``: variables by name or prefix (``AWS_*``). ``on_step`` gets progress."""

    ship_env: bool = False
    pass_env: Sequence[str] = ()
    on_step: Callable[[str], None] = lambda step: None

    def add_to(self, conf: SparkConf) -> None:
        """Add the settings for a new session. Raises ConfigError for variables that the driver's environment lacks, and for an
        environment that cannot be shipped."""
        variables = passed(self.pass_env, os.environ)
        for name, value in variables.items():
            conf.set(_VARIABLE + name, value)
        if variables:
            # Spark hides values whose names match from its pages and event logs. Its default misses some names of credentials.
            names = "|".join(map(re.escape, variables))
            conf.set(_REDACTED, rf"{conf.get(_REDACTED, _DEFAULT_REDACTED)}|executorEnv\.({names})$")
        if self.ship_env and has_several_hosts(conf.get("spark.master") or ""):
            python = conf.get(_EXECUTORS_PYTHON)
            if python not in (None, PYTHON):
                raise ConfigError(f"--ship-env and {_EXECUTORS_PYTHON} = {python} exclude each other; leave out one of the two")
            self.on_step("packing the environment")
            archive = packed_environment(lambda done, total: None)
            others = [entry for entry in (conf.get(_ARCHIVES) or "").split(",") if entry]
            conf.set(_ARCHIVES, ",".join([*others, f"{archive.as_uri()}#{ENVIRONMENT}"]))
            conf.set(_EXECUTORS_PYTHON, PYTHON)

    def check(self, conf: SparkConf) -> None:
        """Raises ConfigError if an existing session lacks them."""
        if not has_several_hosts(conf.get("spark.master") or ""):
            return
        variables = passed(self.pass_env, os.environ)
        missing = [name for name, value in variables.items() if conf.get(_VARIABLE + name) != value]
        if self.ship_env and conf.get(_EXECUTORS_PYTHON) != PYTHON:
            raise ConfigError(
                "--ship-env has no effect on a SparkSession that exists already; let forkpoint start it, or give the session "
                "spark.archives and spark.pyspark.python"
            )
        if missing:
            raise ConfigError(
                f"--pass-env has no effect on a SparkSession that exists already, whose executors do not get {missing[0]}; let "
                f"forkpoint start it, or give the session {_VARIABLE}{missing[0]}"
            )


def passed(names: Sequence[str], environment: Mapping[str, str]) -> Mapping[str, str]:
    """The variables of these names. Raises ConfigError if a name is not set, or no name has a prefix."""
    variables: dict[str, str] = {}
    for name in names:
        prefix = name.removesuffix("*")
        matches = sorted(each for each in environment if each == name or (prefix != name and each.startswith(prefix)))
        if not matches:
            missing = f"no variable that begins with {prefix}" if prefix != name else f"no variable {name}"
            raise ConfigError(f"--pass-env {name}: the driver's environment has {missing}; export it first")
        variables.update({match: environment[match] for match in matches})
    return variables


NOTHING = Provisions()


# spark-submit sets these by itself.
_AUTOMATIC = {"spark.app.name", "spark.app.submitTime", "spark.submit.deployMode", "spark.ui.showConsoleProgress"}


def submitted_settings() -> Mapping[str, str] | None:
    """The settings that start such a Spark again; None in cluster mode, where the cluster started the process. Call it once Spark
    runs."""
    settings = dict(SparkConf().getAll())
    in_driver = settings.get("spark.kubernetes.submitInDriver") == "true"
    if in_driver or settings.get("spark.submit.deployMode") == "cluster":
        return None
    return {name: value for name, value in settings.items() if name not in _AUTOMATIC and value}
