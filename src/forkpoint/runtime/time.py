"""Event time inside an epoch: one coordinate for all splits.

An element's place in event time is ``v``, its split's watermark just before it. All splits share this coordinate, so
the watermark that an operator sees at ``v`` is ``min over splits of clamp(v, start, end)``, which for splits with
start ≤ end is ``clip(v, min of starts, min of ends)``. It needs only each split's watermark at the start and at the end of
the epoch, whatever the parallelism.

Between two elements the watermark passes every millisecond: a timer for ``t`` fires at watermark ``t``, after the elements
at ``v = t - 1`` and before those at ``v = t``, and what it emits is ahead of watermark ``t`` downstream. ``position`` packs
this order into one integer: ``2 v + 1`` for an element, ``2 t`` for a timer. Both see the watermark
``(position - 1) >> 1``.

Watermarks and timestamps are int ms. They are kept within ±2**61 so that positions fit into 64 bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forkpoint.runtime.epoch import EpochContext, SplitProgress, SplitStart

MIN_MS = -(2**61)
MAX_MS = 2**61

Longs = npt.NDArray[np.int64]


def element_positions(before_ms: Longs) -> Longs:
    return before_ms * 2 + 1


def timer_position(time_ms: int) -> int:
    return max(MIN_MS, min(MAX_MS, time_ms)) * 2


def timer_positions(times_ms: Longs) -> Longs:
    return np.clip(times_ms, MIN_MS, MAX_MS) * 2


@dataclass(frozen=True)
class Window:
    """The watermark's way through one epoch for one operator: from ``start`` to ``end``.

    ``before`` is where the epoch before left it; ``start`` is ahead of it where a split that held it back went idle.
    """

    before: int
    start: int
    end: int

    def at_one(self, position: int) -> int:
        """The watermark that an element or what a timer emitted at this position sees.

        Timers fire on the way to ``start`` as well; elements come behind it.
        """
        return min(max((position - 1) >> 1, self.start if position & 1 else self.before), self.end)

    def at(self, positions: Longs) -> Longs:
        """The watermarks that elements or what timers emitted at these positions see."""
        least = np.where(positions & 1, self.start, self.before)
        return np.asarray(np.clip((positions - 1) >> 1, least, self.end))


@dataclass(frozen=True)
class Splits:
    """All splits of one watermark origin over one epoch.

    ``pieces`` maps (split, piece) to the split's watermark just before that piece: tasks know only their own piece,
    so whoever receives their elements completes the running maximum with it. ``active`` splits take part in the epoch;
    ``waiting`` ones are waited for at its end: neither finished nor marked idle by then. ``unheard``: there are none yet,
    and that holds the watermark back.
    """

    order: Mapping[str, int]
    pieces: Mapping[tuple[str, int], int]
    starts: Mapping[str, int]
    ends: Mapping[str, int]
    active: frozenset[str]
    waiting: frozenset[str]
    unheard: bool


def join_pieces(
    start: Mapping[str, SplitStart],
    progress: Iterable[SplitProgress],
    *,
    released: bool = False,
    finished: Collection[str] = (),
) -> Splits:
    """Complete each split's running watermark over the pieces that were read in this epoch.

    An origin of which nothing was heard yet holds the watermark back, unless it is ``released``: it has ended, or has
    been silent for longer than its idleness allows. Then its splits don't count. ``finished`` splits count no longer than
    their last elements.
    """
    starts = {split: s.watermark_ms for split, s in start.items()}
    ends = dict(starts)
    pieces: dict[tuple[str, int], int] = {}
    fed: set[str] = set()
    marked = {split for split, s in start.items() if s.marked_idle}
    asleep = set(marked)
    for p in sorted(set(progress), key=lambda p: (p.split, p.piece)):
        starts.setdefault(p.split, MIN_MS)
        before = ends.get(p.split, MIN_MS)
        pieces[p.split, p.piece] = before
        ends[p.split] = max(before, p.watermark_ms)
        (asleep.add if p.marked_idle else asleep.discard)(p.split)
        if p.count:
            fed.add(p.split)
    idle = {
        split for split in ends if split not in fed and (split in finished or (split in start and start[split].idle))
    }
    active = frozenset() if released and not fed else frozenset(set(ends) - idle - (marked & asleep))
    waiting = active - asleep - set(finished)
    order = {s: i for i, s in enumerate(sorted(ends))}
    return Splits(order, pieces, starts, ends, active, waiting, unheard=not ends and not released)


def origin_splits(
    context: EpochContext, origins: Iterable[int], progress: Iterable[SplitProgress]
) -> dict[int, Splits]:
    """Each watermark origin's splits over an epoch; tasks and driver work it out from the same progress."""
    heard: dict[int, list[SplitProgress]] = {}
    for p in progress:
        heard.setdefault(p.origin, []).append(p)
    return {
        o: join_pieces(
            context.splits.get(str(o), {}), heard.get(o, ()),
            released=o in context.released, finished=context.finished.get(str(o), ()),
        )
        for o in origins
    }  # fmt: skip


def window_of(context: EpochContext, uid: str, origins: Collection[int], splits: Mapping[int, Splits]) -> Window:
    """The watermark of the operator ``uid``, which has these origins upstream."""
    drain = context.drain or (bool(origins) and set(origins) <= set(context.ended))
    return operator_window([splits[o] for o in origins if o in splits], context.watermarks.get(uid, MIN_MS), drain)


def operator_window(splits: Collection[Splits], current_ms: int, drain: bool) -> Window:
    """The watermark of an operator behind these splits; it never goes back behind ``current_ms``.

    If no split is waited for any more, it ends where each origin's last one left it.
    """
    unheard = [MIN_MS for s in splits if s.unheard]
    starts = [s.starts[name] for s in splits for name in s.active]
    ends = [s.ends[name] for s in splits for name in s.waiting]
    left = min((max(s.ends[name] for name in s.active) for s in splits if s.active), default=MIN_MS)
    start = max(current_ms, min(unheard + starts, default=current_ms))
    end = MAX_MS if drain else max(start, min(unheard + ends, default=left))
    return Window(current_ms, start, end)
