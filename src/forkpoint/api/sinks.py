"""Sinks that use Spark's writers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DataFrameSink:
    """Writes each epoch with a Spark writer: ``DataFrameSink(lambda w: w.format("delta").save(path))``.

    ``fn(writer)`` gets the epoch's ``DataFrameWriter`` in append mode, on the driver, before the epoch's commit. An epoch
    repeated after a crash is written again, so delivery is at-least-once; ``stream.for_each_epoch(fn)`` passes the epoch
    number, by which a target can deduplicate.
    """

    fn: Callable[[Any], Any]

    def __call__(self, frame: Any, epoch: int) -> None:
        """Write one epoch. ``frame``: its elements as a Spark DataFrame."""
        self.fn(frame.write.mode("append"))
