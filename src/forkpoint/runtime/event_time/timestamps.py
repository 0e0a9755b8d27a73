"""Assigns timestamps and watermarks to the elements of one piece of a split, in stage 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from forkpoint.errors import GraphError, TypeNotSupported, UserFunctionError
from forkpoint.functions import MAX_WATERMARK, MIN_WATERMARK, WatermarkGenerator, WatermarkOutput, WatermarkStrategy, epoch_ms
from forkpoint.runtime.event_time.watermarks import MAX_MS, MIN_MS, element_positions
from forkpoint.runtime.exchange.batch import Batch, Longs, column_ms, joined
from forkpoint.runtime.exchange.control import SplitProgress, SplitStart
from forkpoint.runtime.expressions.functions import OverColumns
from forkpoint.runtime.operators.base import results_for, user_code
from forkpoint.types import Types


class PieceClock:
    """Sets timestamps and positions of one piece's elements, batch by batch.

    ``watermark_ms``: the piece's watermark, which starts with the watermark of the split at the start of the epoch. The
    receiver combines it with the watermarks of earlier pieces.
    """

    def __init__(
        self,
        uid: str,
        strategy: WatermarkStrategy,
        column: str | None,
        start: SplitStart | None,
        computed: OverColumns | None = None,
    ) -> None:
        self._uid = uid
        self._computed = computed
        self._strategy = strategy
        self._assign = strategy.timestamp_function()
        self._column = column
        self.watermark_ms = MIN_MS if start is None else start.watermark_ms
        self.count = 0

    def assign_timestamps(self, batch: Batch) -> None:
        """Set the batch's timestamps, which depend on nothing but its elements."""
        if self._assign is not None or self._column is not None:
            self._assign_timestamps(batch)

    def positions(self, batch: Batch) -> Longs | int:
        """The positions of the next elements. Advances the watermark; this class has none."""
        self.count += batch.size
        return self._positions(batch)

    def _positions(self, batch: Batch) -> Longs | int:
        return 2 * self.watermark_ms + 1

    def at_next_watermark(self, batch: Batch) -> Batch:
        """The elements moved ahead of all elements that see the watermark after them, if timestamps determine that watermark."""
        return batch

    def progress(self, origin: int, split: str, piece: int) -> SplitProgress:
        """The progress of the completed piece."""
        return SplitProgress(origin, split, piece, self.watermark_ms, self.count)

    def _assign_timestamps(self, batch: Batch) -> None:
        if self._column is not None and batch.table is not None:
            column = batch.table.column(self._column)
            if not column.null_count:
                batch.stamp(column_ms(column), self._column)
                return
        computed = None if self._computed is None else self._computed.columns(batch, None)
        if computed is not None:
            batch.stamp(column_ms(computed[0]), None)
            return
        if self._assign is None:
            raise GraphError(f"source {self._uid!r}: the timestamp column {self._column!r} has nulls; filter them out first")
        stamps = results_for(batch, self._uid, map(self._assign, batch.values, batch.stamps.tolist()))
        batch.stamp(self._checked(batch, stamps), None)

    def _checked(self, batch: Batch, stamps: list[int]) -> Longs:
        try:
            return np.array(stamps, dtype=np.int64)
        except OverflowError:
            at = next(i for i, stamp in enumerate(stamps) if not MIN_WATERMARK <= stamp <= MAX_WATERMARK)
        with user_code(self._uid, lambda: batch.values[at]):
            epoch_ms(stamps[at])
        raise AssertionError("all timestamps have 64 bits")


class BoundedClock(PieceClock):
    """The watermark after each element is the greatest timestamp minus the bound minus 1 ms, as in Flink."""

    def _positions(self, batch: Batch) -> Longs | int:
        stamps = batch.timestamps
        if stamps is None or not batch.size:
            return super()._positions(batch)
        behind = np.maximum.accumulate(self._behind(stamps))
        np.maximum(behind, self.watermark_ms, out=behind)
        before = np.empty_like(behind)
        before[0] = self.watermark_ms
        before[1:] = behind[:-1]
        self.watermark_ms = int(behind[-1])
        return element_positions(before)

    def at_next_watermark(self, batch: Batch) -> Batch:
        stamps = batch.timestamps
        if stamps is None or not batch.size:
            return batch
        moved = batch.slice(0, batch.size)
        moved.positions = np.maximum(moved.positions, self._behind(stamps) * 2)
        return moved

    def _behind(self, stamps: Longs) -> Longs:
        """The watermark after each timestamp, below the final watermark, which only the end of the input has."""
        assert self._strategy.out_of_orderness_ms is not None
        lag = self._strategy.out_of_orderness_ms + 1
        return np.clip(stamps, MIN_MS + lag, MAX_MS - 1 + lag) - lag


@dataclass(slots=True)
class _Output(WatermarkOutput):
    """A generator's output so far. Watermarks never decrease."""

    watermark_ms: int
    idle: bool

    def emit_watermark(self, watermark: int) -> None:
        ms = watermark if watermark.__class__ is int else epoch_ms(watermark)
        self.idle = False
        if ms > self.watermark_ms:
            self.watermark_ms = ms if ms < MAX_MS else min(epoch_ms(ms), MAX_MS)

    def mark_idle(self) -> None:
        self.idle = True

    def mark_active(self) -> None:
        self.idle = False


class GeneratorClock(PieceClock):
    """Watermarks of the user's generator, which sees an entire split in order."""

    def __init__(
        self,
        uid: str,
        strategy: WatermarkStrategy,
        column: str | None,
        start: SplitStart | None,
        computed: OverColumns | None = None,
        *,
        periodic: bool,
    ) -> None:
        super().__init__(uid, strategy, column, start, computed)
        assert strategy.generator_factory is not None
        self._periodic = periodic
        self._output = _Output(self.watermark_ms, start is not None and start.marked_idle)
        with user_code(uid, lambda: "none yet: creating the watermark generator"):
            self._generator = strategy.generator_factory()
            if not isinstance(self._generator, WatermarkGenerator):
                raise UserFunctionError(
                    f"operator {uid!r}: the factory given to for_generator() returned {self._generator!r}; return a "
                    "WatermarkGenerator"
                )
            if start is not None and start.generator is not None:
                self._generator.restore_state(Types.ANY().decode(start.generator))

    def _positions(self, batch: Batch) -> Longs | int:
        output, on_event = self._output, self._generator.on_event
        before: list[int] = []
        with user_code(self._uid, lambda: batch.values[len(before) - 1]):
            for value, stamp in zip(batch.values, batch.stamps.tolist(), strict=True):
                before.append(output.watermark_ms)
                on_event(value, stamp, output)
        self.watermark_ms = output.watermark_ms
        return element_positions(np.array(before, dtype=np.int64))

    def progress(self, origin: int, split: str, piece: int) -> SplitProgress:
        output = self._output
        with user_code(self._uid, lambda: f"none: the epoch's end in split {split}"):
            if self._periodic and self.count:
                self._generator.on_periodic_emit(output)
            state = dict(self._generator.snapshot_state())
        try:
            encoded = Types.ANY().encode(state)
        except Exception as error:
            raise TypeNotSupported(
                f"operator {self._uid!r}: the state {state!r} of watermark generator {type(self._generator).__name__} cannot be "
                f"saved: {error}. Return plain values from snapshot_state(), and restore from them in restore_state()"
            ) from error
        return SplitProgress(origin, split, piece, output.watermark_ms, self.count, output.idle, encoded)


def stamp(batch: Batch, clocks: Sequence[PieceClock]) -> None:
    """Set the timestamps and positions of elements of one or several pieces with the same strategy. ``batch.splits`` is the index
    of each element's clock; the elements of each piece are next to each other."""
    clocks[0].assign_timestamps(batch)
    if isinstance(batch.splits, int):
        batch.positions = clocks[batch.splits].positions(batch)
        return
    starts = np.searchsorted(batch.splits, np.arange(len(clocks) + 1)).tolist()
    parts = [batch.slice(start, stop) for start, stop in pairwise(starts)]
    batch.positions = joined([clock.positions(part) for clock, part in zip(clocks, parts, strict=True)], parts)


def open_clock(
    uid: str,
    strategy: WatermarkStrategy,
    column: str | None,
    start: SplitStart | None,
    computed: OverColumns | None = None,
    *,
    periodic: bool,
) -> PieceClock:
    """The clock of a piece whose split starts the epoch at ``start``. ``computed``: the timestamps over columns.

    Without ``periodic`` watermarks (an automatic interval of 0), only generators emit watermarks, in ``on_event``.
    """
    if strategy.generator_factory is not None:
        return GeneratorClock(uid, strategy, column, start, computed, periodic=periodic)
    bounded = periodic and strategy.out_of_orderness_ms is not None
    return (BoundedClock if bounded else PieceClock)(uid, strategy, column, start, computed)
