"""A driver's loop without a driver, for the tests of sources that acknowledge."""

from __future__ import annotations

import time
from typing import Any

from connectors.connector_reading import json_round_trip, read_all
from forkpoint.contract.source import Source, SplitRange


class Loop:
    """Plans, reads and commits, as a job does. ``read``: what was read by committed epochs."""

    def __init__(self, source: Source[Any], position: Any = None) -> None:
        self.source = source
        self.enumerator = source.create_enumerator(json_round_trip(position))
        self.read: list[Any] = []
        self.position = position

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: object) -> None:
        self.enumerator.close()

    def planned(self, max_rows: int = 1000) -> list[SplitRange]:
        """The next epoch that has anything to read."""
        while True:
            ranges = self.enumerator.plan(max_rows)
            if any(r.rows for r in ranges):
                return ranges
            time.sleep(0.002)

    def epoch(self, ranges: list[SplitRange] | None = None, max_rows: int = 1000, *, commit: bool = True) -> Any:
        """One epoch; returns its position. Without ``commit`` it is committed, and nobody is told."""
        ranges = self.planned(max_rows) if ranges is None else ranges
        for values in read_all(self.source, ranges).values():
            self.read += values
        self.position = json_round_trip(self.enumerator.position)
        if commit:
            self.enumerator.committed(self.position)
        return self.position

    def until(self, count: int) -> None:
        while len(self.read) < count:
            self.epoch()

    def until_it_fails(self) -> None:
        while True:
            self.enumerator.plan(1000)
            time.sleep(0.002)
