"""Stage 0's view of time: timestamps and watermarks along one piece of a split."""

from __future__ import annotations

from typing import Any

import numpy as np

from forkpoint.errors import GraphError
from forkpoint.functions import WatermarkStrategy
from forkpoint.runtime.batch import NO_TIMESTAMP_MS, Batch, column_ms
from forkpoint.runtime.operators.base import user_error
from forkpoint.runtime.time import MIN_MS, element_positions


class PieceClock:
    """Gives the elements of one piece their timestamps and places, batch after batch.

    ``watermark_ms`` is the piece's own watermark so far; the receiver completes it with what came before the piece.
    """

    def __init__(self, uid: str, strategy: WatermarkStrategy, column: str | None) -> None:
        self._uid = uid
        self._bound_ms = strategy.out_of_orderness_ms
        self._assign = strategy.timestamp_function()
        self._column = column
        self.watermark_ms = MIN_MS
        self.count = 0

    def stamp(self, batch: Batch) -> Batch:
        """Set the batch's timestamps and positions."""
        self.count += batch.size
        if self._assign is not None or self._column is not None:
            self._assign_timestamps(batch)
        stamps = batch.timestamps
        if self._bound_ms is None or stamps is None or not batch.size:
            batch.positions = 2 * self.watermark_ms + 1
            return batch
        # The watermark behind each element, as Flink's bounded out-of-orderness: max - bound - 1.
        behind = np.maximum.accumulate(np.maximum(stamps, MIN_MS + self._bound_ms + 1)) - (self._bound_ms + 1)
        np.maximum(behind, self.watermark_ms, out=behind)
        before = np.empty_like(behind)
        before[0] = self.watermark_ms
        before[1:] = behind[:-1]
        self.watermark_ms = int(behind[-1])
        batch.positions = element_positions(before)
        return batch

    def _assign_timestamps(self, batch: Batch) -> None:
        if self._column is not None and batch.table is not None:
            column = batch.table.column(batch.table.schema.get_field_index(self._column))
            if not column.null_count:
                batch.stamp(column_ms(column), self._column)
                return
        before = batch.timestamps
        records = [NO_TIMESTAMP_MS] * batch.size if before is None else before.tolist()
        out: list[Any] = []
        if self._assign is None:
            raise GraphError(
                f"source {self._uid!r}: the timestamp column {self._column!r} has nulls; filter them out first"
            )
        try:
            out.extend(map(self._assign, batch.values, records))
            batch.stamp(np.array(out, dtype=np.int64), None)
        except Exception as error:
            raise user_error(self._uid, error, batch.values[min(len(out), batch.size - 1)]) from error
