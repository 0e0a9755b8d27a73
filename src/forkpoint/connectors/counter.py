"""A source that counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from forkpoint.connectors.collection import in_pieces
from forkpoint.contract.source import JSON, Backlog, Source, SourceReader, SplitEnumerator, SplitRange
from forkpoint.errors import ConfigError
from forkpoint.types import TypeInformation, Types


class CounterSource(Source[int]):
    """Counts from ``start`` to ``stop`` (exclusive), or forever.

    ``per_epoch`` limits the numbers of an epoch; an endless count would otherwise always reach the job's limit.
    """

    def __init__(self, stop: int | None = None, *, start: int = 0, per_epoch: int = 10_000) -> None:
        for name, number in (("stop", stop), ("start", start), ("per_epoch", per_epoch)):
            if not (isinstance(number, int) or (name == "stop" and number is None)) or isinstance(number, bool):
                raise ConfigError(f"CounterSource: {name} is {number!r}; give an int")
        if stop is not None and stop < start:
            raise ConfigError(f"CounterSource: stop is {stop}, below start, {start}; give at least {start}")
        if per_epoch < 1:
            raise ConfigError(f"CounterSource: per_epoch is {per_epoch}; give at least 1")
        self._start = start
        self._stop = stop
        self._per_epoch = per_epoch

    def output_type(self) -> TypeInformation[int]:
        return Types.LONG()

    @property
    def bounded(self) -> bool:
        return self._stop is not None

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        return CounterEnumerator(self._start if position is None else position["next"], self._stop, self._per_epoch)

    def create_reader(self) -> SourceReader[int]:
        return _CounterReader()


class NumberSequenceSource(CounterSource):
    """PyFlink's source of the numbers from ``start`` to ``end``, both inclusive, in order."""

    def __init__(self, start: int, end: int) -> None:
        if not (isinstance(start, int) and isinstance(end, int)):
            raise ConfigError(f"NumberSequenceSource({start!r}, {end!r}): both must be ints")
        if end < start:
            raise ConfigError(f"NumberSequenceSource({start}, {end}): the last number must not be below the first")
        super().__init__(end + 1, start=start, per_epoch=self.default_limit)


class CounterEnumerator(SplitEnumerator):
    """Position: ``{"next": n}``, the next number to count."""

    def __init__(self, first: int, stop: int | None, per_epoch: int) -> None:
        self._next = first
        self._stop = stop
        self._per_epoch = per_epoch
        self._stop_at: int | None = None

    def stop_at(self, position: JSON) -> None:
        if position["next"] < self._next:
            raise ConfigError(f"CounterSource: cannot stop at {position['next']}: it is at {self._next} already")
        self._stop_at = position["next"]

    @property
    def at_stop(self) -> bool:
        return self._next == self._stop_at

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        count = min(max_rows, self._per_epoch)
        end = min((n for n in (self._stop, self._stop_at) if n is not None), default=None)
        if end is not None:
            count = max(0, min(count, end - self._next))
        ranges = in_pieces("counter", self._next, count, parallelism_hint) if count else []
        self._next += count
        return ranges

    def backlog(self) -> Backlog | None:
        end = min((n for n in (self._stop, self._stop_at) if n is not None), default=None)
        return None if end is None else Backlog(max(0, end - self._next))

    @property
    def position(self) -> JSON:
        return {"next": self._next}

    @property
    def finished(self) -> bool:
        return self._stop is not None and self._next >= self._stop and self._stop_at is None


class _CounterReader(SourceReader[int]):
    def read(self, range: SplitRange) -> Iterator[pa.RecordBatch]:
        numbers = np.arange(range.start, range.end, dtype=np.int64)
        yield pa.RecordBatch.from_arrays([pa.array(numbers)], names=["value"])
