"""Sinks that are Spark's own writers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DataFrameSink:
    """Writes each epoch with a Spark writer: ``DataFrameSink(lambda w: w.format("delta").save(path))``.

    ``fn(writer)`` gets the epoch's ``DataFrameWriter`` in append mode, on the driver, ahead of the epoch's commit. An
    epoch that is repeated after a crash is written again, so results are at least once unless the target recognises
    the epoch; ``stream.for_each_epoch(fn)`` has its number.
    """

    fn: Callable[[Any], Any]

    def __call__(self, frame: Any, epoch: int) -> None:
        """Write one epoch. ``frame``: its elements as a Spark DataFrame."""
        self.fn(frame.write.mode("append"))
