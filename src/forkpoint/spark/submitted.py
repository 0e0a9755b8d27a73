"""The settings that this process's Spark was started with: by spark-submit, spark-defaults.conf or the environment."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark import SparkConf

# What spark-submit sets by itself.
_OWN = {"spark.app.name", "spark.app.submitTime", "spark.submit.deployMode", "spark.ui.showConsoleProgress"}


def submitted_settings() -> Mapping[str, str] | None:
    """They start such a Spark again. None in cluster mode, where the cluster started the process. Call this once Spark runs."""
    found = dict(SparkConf().getAll())
    in_driver = found.get("spark.kubernetes.submitInDriver") == "true"
    if in_driver or found.get("spark.submit.deployMode") == "cluster":
        return None
    return {name: value for name, value in found.items() if name not in _OWN and value}
