"""Packing the virtual environment for executors, before anything is stopped or waits for it: the driver finds it in the cache."""

from __future__ import annotations

from forkpoint.operations.observer import Observer
from forkpoint.spark.archive import packed_environment


def pack(ship_env: bool, observer: Observer) -> None:
    """Pack this process's environment, which is its drivers' too, if it is to be shipped."""
    if ship_env:
        with observer.progress("packing the environment", "MiB") as report:
            packed_environment(report)
