"""Broadcast elements take effect at their own event time, independent of the division into epochs.

The source of a broadcast stream may run hours ahead of the other stream, because an epoch reads all its available elements. So
an element that the other stream has not reached by the end of the epoch waits in operator state. It takes effect in the epoch in
which the other stream's watermark passes its time, before all elements and timers that see that watermark.

Splits of the other stream may be ahead of that watermark, by the input of an epoch, or for as long as a silent split holds the
watermark back. Their elements also see waiting elements, up to their own event time: the function processes these
*provisionally*. The end of the epoch rolls its writes to broadcast state back, and drops its output and its changes of keyed
state, which follow when the element takes effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forkpoint.errors import TypeNotSupported
from forkpoint.functions import MapStateDescriptor
from forkpoint.runtime.event_time.watermarks import MAX_MS, MIN_MS, EventTime, timer_positions
from forkpoint.runtime.exchange.batch import NO_TIMESTAMP_MS, Batch, Longs, concat, spread
from forkpoint.runtime.operators.base import shorten
from forkpoint.runtime.state.broadcast_state import BroadcastMap
from forkpoint.types import TypeInformation, Types
from forkpoint.types.copying import element_type

WAITING = "_waiting"
_FIRST = 2 * MIN_MS


def waiting_elements(type: TypeInformation | None) -> MapStateDescriptor[int, tuple[Any, ...]]:
    """The state of waiting elements by number, each with position, split, sequence and timestamp (int64 ms)."""
    coordinates = [Types.LONG()] * 4
    return MapStateDescriptor(WAITING, Types.LONG(), Types.TUPLE([*coordinates, element_type(type)]))


class _Waiting(NamedTuple):
    position: int
    split: int
    sequence: int
    timestamp: int
    number: int


class BroadcastTime:
    """The waiting elements of one operator on one subtask."""

    def __init__(self, uid: str, type: TypeInformation | None, waiting: BroadcastMap, states: Sequence[BroadcastMap]) -> None:
        self._uid, self._type = uid, type
        self._state, self._others = waiting, states
        self._waiting = sorted(_Waiting._make((*entry[:4], number)) for number, entry in waiting.items())
        self._next = max((w.number for w in self._waiting), default=-1) + 1
        self._final = 0  # the number of the epoch's elements that are not provisional, which come first
        self._processed = 0

    def begin(self, first: Batch, arrived: Batch, time: EventTime | None) -> Batch:
        """The broadcast elements that the epoch processes, in order. ``first``: the other stream's elements; ``time``: its
        event time, None if it has none."""
        self._final = self._processed = 0
        timed = arrived.stamps != NO_TIMESTAMP_MS
        if time is None or not (timed.any() or self._waiting):
            time = EventTime(MAX_MS, MAX_MS, apart=False)
        reached = 2 * time.end + 1
        seen = max(reached, int(spread(first.positions, first.size).max()) if first.size else _FIRST)
        earlier = [w for w in self._waiting if w.position <= seen]
        moved = arrived.slice(0, arrived.size)
        moved.positions, moved.ordered = self._positions(arrived, timed, time), False
        batch = concat([b for b in (self._batch(earlier, time), moved) if b.size], self._type).in_order()
        positions = spread(batch.positions, batch.size)
        self._final, processed = int((positions <= reached).sum()), int((positions <= seen).sum())
        for waiting in earlier:
            if waiting.position <= reached:
                self._state.remove(waiting.number)
        self._waiting = [w for w in self._waiting if w.position > reached]
        self._keep(moved, np.flatnonzero(spread(moved.positions, moved.size) > reached))
        return batch if processed == batch.size else batch.slice(0, processed)

    def provisional(self) -> bool:
        """Count the next broadcast element, and return whether it is provisional."""
        self._processed += 1
        if self._processed == self._final + 1:
            for state in self._others:
                state.mark()
        return self._processed > self._final

    def end(self) -> None:
        """Roll back the writes of provisional elements."""
        if self._processed > self._final:
            for state in self._others:
                state.roll_back()

    def _positions(self, arrived: Batch, timed: npt.NDArray[np.bool_], time: EventTime) -> Longs:
        """The positions where elements take effect: where the other stream's watermark reaches their timestamps. Elements of the
        other stream's own source keep their positions; elements without a timestamp do not wait."""
        positions = spread(arrived.positions, arrived.size)
        at_once = np.minimum(positions, 2 * time.end + 1)
        own = timer_positions(np.clip(arrived.stamps, MIN_MS + 1, MAX_MS) - 1) if time.apart else positions
        return np.where(timed, own, at_once)

    def _keep(self, arrived: Batch, rows: Longs) -> None:
        """Add the elements at ``rows``, which the other stream has not reached, to the waiting elements."""
        if not len(rows):
            return
        positions, stamps = spread(arrived.positions, arrived.size), arrived.stamps
        splits = spread(arrived.splits, arrived.size)
        columns = (positions, splits, arrived.sequence, stamps)
        coordinates = zip(*(column[rows].tolist() for column in columns), strict=True)
        for key, value in zip(coordinates, arrived.objects(rows), strict=True):
            try:
                self._state.put(self._next, (*key, value))
            except TypeNotSupported as error:
                raise TypeNotSupported(
                    f"operator {self._uid!r}: the broadcast element {shorten(value)} is ahead of the other stream and must wait "
                    f"in state, but it cannot be saved: {error}. Give the broadcast stream a type (output_type=)"
                ) from error
            self._waiting.append(_Waiting._make((*key, self._next)))
            self._next += 1
        self._waiting.sort()

    def _batch(self, waiting: list[_Waiting], time: EventTime) -> Batch:
        if not waiting:
            return Batch(0, 0, 0, np.empty(0, np.int64), values=[], type=self._type)
        positions, splits, sequence, stamps, numbers = (np.array(column, np.int64) for column in zip(*waiting, strict=True))
        positions = np.where(positions <= 2 * time.start, _FIRST, positions)  # ahead of all elements that see ``start``
        values = [self._state.get(number)[4] for number in numbers.tolist()]
        return Batch(len(values), positions, splits, sequence, values=values, type=self._type, timestamps=stamps, ordered=False)
