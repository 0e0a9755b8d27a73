"""What executors get from the driver's process: its virtual environment, the environment variables that the user names, and
Spark's own settings.
"""

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
_SPARKS_REDACTED = "(?i)secret|password|token|access[.]?key"


@dataclass(frozen=True)
class Provisions:
    """``ship_env``: the environment. ``pass_env``: variables by name, or by prefix (``AWS_*``). ``on_step`` gets the progress."""

    ship_env: bool = False
    pass_env: Sequence[str] = ()
    on_step: Callable[[str], None] = lambda step: None

    def add_to(self, conf: SparkConf) -> None:
        """Add the settings for a new session. Raises ConfigError for variables that are not set here, and for an environment that
        cannot be shipped."""
        variables = self._variables()
        for name, value in variables.items():
            conf.set(_VARIABLE + name, value)
        if variables:
            # Spark's own pattern does not know all names of credentials: it hides them from its pages and event logs.
            names = "|".join(map(re.escape, variables))
            conf.set(_REDACTED, rf"{conf.get(_REDACTED, _SPARKS_REDACTED)}|executorEnv\.({names})$")
        if self.ship_env and has_several_hosts(conf.get("spark.master") or ""):
            self._ship(conf)

    def check(self, conf: SparkConf) -> None:
        """Raises ConfigError if a session that exists already lacks them."""
        if not has_several_hosts(conf.get("spark.master") or ""):
            return
        missing = [name for name, value in self._variables().items() if conf.get(_VARIABLE + name) != value]
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

    def _variables(self) -> Mapping[str, str]:
        return passed(self.pass_env, os.environ)

    def _ship(self, conf: SparkConf) -> None:
        given = conf.get(_EXECUTORS_PYTHON)
        if given not in (None, PYTHON):
            raise ConfigError(f"--ship-env and {_EXECUTORS_PYTHON} = {given} exclude each other; leave out one of the two")
        self.on_step("packing the environment")
        archive = packed_environment(lambda done, total: None)
        others = [each for each in (conf.get(_ARCHIVES) or "").split(",") if each]
        conf.set(_ARCHIVES, ",".join([*others, f"{archive.as_uri()}#{ENVIRONMENT}"]))
        conf.set(_EXECUTORS_PYTHON, PYTHON)


def passed(names: Sequence[str], environment: Mapping[str, str]) -> Mapping[str, str]:
    """The variables of these names. Raises ConfigError if one is not set, or none has a prefix."""
    found: dict[str, str] = {}
    for name in names:
        prefix = name.removesuffix("*")
        mine = sorted(each for each in environment if each == name or (prefix != name and each.startswith(prefix)))
        if not mine:
            what = f"no variable that begins with {prefix}" if prefix != name else f"no variable {name}"
            raise ConfigError(f"--pass-env {name}: the driver's environment has {what}; export it first")
        found.update({each: environment[each] for each in mine})
    return found


NOTHING = Provisions()


# What spark-submit sets by itself.
_OWN = {"spark.app.name", "spark.app.submitTime", "spark.submit.deployMode", "spark.ui.showConsoleProgress"}


def submitted_settings() -> Mapping[str, str] | None:
    """They start such a Spark again. None in cluster mode, where the cluster started the process. Call this once Spark runs."""
    found = dict(SparkConf().getAll())
    in_driver = found.get("spark.kubernetes.submitInDriver") == "true"
    if in_driver or found.get("spark.submit.deployMode") == "cluster":
        return None
    return {name: value for name, value in found.items() if name not in _OWN and value}
