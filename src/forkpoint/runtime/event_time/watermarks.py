"""Event time within an epoch: one coordinate for all splits.

The coordinate of an element is ``v``, its split's watermark just before the element. All splits share this coordinate, so
the watermark that an operator sees at ``v`` is ``min over splits of clamp(v, start, end)``, which for splits with
start ≤ end is ``clip(v, min of starts, min of ends)``. So tasks need only each split's watermark at the start and end of the
epoch, at any parallelism.

Between two elements the watermark passes every millisecond: a timer for ``t`` fires at watermark ``t``, after the elements
at ``v = t - 1`` and before the elements at ``v = t``. Its outputs are ahead of watermark ``t`` downstream. ``position`` packs
this order into one integer: ``2 v + 1`` for an element, ``2 t`` for a timer. Both see the watermark
``(position - 1) >> 1``.

Watermarks and timestamps are int ms, within ±2**61 so that positions fit into 64 bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from forkpoint.functions import WatermarkStrategy
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.graph.specs import WatermarkSpec
from forkpoint.runtime.exchange.batch import Longs
from forkpoint.runtime.exchange.control import EpochContext, SplitProgress, SplitStart

MIN_MS = -(2**61)
MAX_MS = 2**61


def element_positions(before_ms: Longs) -> Longs:
    return before_ms * 2 + 1


def timer_position(time_ms: int) -> int:
    return max(MIN_MS, min(MAX_MS, time_ms)) * 2


def timer_positions(times_ms: Longs) -> Longs:
    return np.clip(times_ms, MIN_MS, MAX_MS) * 2


@dataclass(frozen=True)
class Window:
    """An operator's watermark over one epoch: from ``start`` to ``end``.

    ``before``: the watermark at the end of the previous epoch; ``start`` is ahead of it if a split that held it back is now idle.
    """

    before: int
    start: int
    end: int

    def at_one(self, position: int) -> int:
        """The watermark that an element, or a timer's output, sees at this position.

        Timers also fire before ``start``; elements follow it.
        """
        return min(max((position - 1) >> 1, self.start if position & 1 else self.before), self.end)

    def at(self, positions: Longs) -> Longs:
        """The watermarks that elements, or timers' outputs, see at these positions."""
        least = np.where(positions & 1, self.start, self.before)
        return np.asarray(np.clip((positions - 1) >> 1, least, self.end))


@dataclass(frozen=True)
class Splits:
    """All splits of one watermark origin over one epoch.

    ``pieces`` maps (split, piece) to the split's watermark just before that piece: a task knows only its own piece, so the
    receivers of its elements complete the running maximum. ``active``: splits that take part in the epoch; ``waiting``: splits
    that hold the watermark back at its end, neither finished nor marked idle by then. ``no_splits_yet``: the lack of splits
    holds the watermark back. ``ended``: all splits are finished.
    """

    order: Mapping[str, int]
    pieces: Mapping[tuple[str, int], int]
    starts: Mapping[str, int]
    ends: Mapping[str, int]
    active: frozenset[str]
    waiting: frozenset[str]
    no_splits_yet: bool
    ended: bool


def join_pieces(
    start: Mapping[str, SplitStart], progress: Iterable[SplitProgress], *, released: bool = False, finished: Collection[str] = ()
) -> Splits:
    """Complete each split's running watermark over the pieces of this epoch.

    An origin without splits holds the watermark back unless it is ``released``: it has ended, or has been silent for longer
    than its idleness timeout. Then its splits do not count. ``finished`` splits count only up to their last elements.
    """
    starts = {split: s.watermark_ms for split, s in start.items()}
    ends = dict(starts)
    pieces: dict[tuple[str, int], int] = {}
    with_elements: set[str] = set()
    marked = {split for split, s in start.items() if s.marked_idle}
    marked_at_end = set(marked)
    for p in sorted(set(progress), key=lambda p: (p.split, p.piece)):
        starts.setdefault(p.split, MIN_MS)
        before = ends.get(p.split, MIN_MS)
        pieces[p.split, p.piece] = before
        ends[p.split] = max(before, p.watermark_ms)
        (marked_at_end.add if p.marked_idle else marked_at_end.discard)(p.split)
        if p.count:
            with_elements.add(p.split)
    idle = {split for split in ends.keys() - with_elements if split in finished or (split in start and start[split].idle)}
    active = set() if released and not with_elements else set(ends) - idle - (marked & marked_at_end)
    waiting = active - marked_at_end - set(finished)
    order = {s: i for i, s in enumerate(sorted(ends))}
    no_splits_yet = not ends and not released
    ended = not no_splits_yet and set(ends) <= set(finished)
    return Splits(order, pieces, starts, ends, frozenset(active), frozenset(waiting), no_splits_yet, ended)


def origin_splits(graph: JobGraph, context: EpochContext, progress: Iterable[SplitProgress]) -> dict[int, Splits]:
    """The splits of each watermark origin over an epoch; tasks and driver compute them from the same progress."""
    by_origin: dict[int, list[SplitProgress]] = {}
    for p in progress:
        by_origin.setdefault(p.origin, []).append(p)
    return {
        o.id: join_pieces(
            context.splits.get(str(o.id), {}),
            by_origin.get(o.id, ()),
            released=o.id in context.released,
            finished=context.finished.get(str(o.id), ()),
        )
        for o in graph.operators
        if isinstance(o.spec, WatermarkSpec)
    }


@dataclass(frozen=True)
class Channel:
    """A stream's watermark over one epoch, from ``start`` to ``end``, as its consumers see it.

    ``active``: the stream takes part in the epoch. ``waiting``: it can hold other streams back at the end of the epoch, neither
    ``ended`` nor idle by then.
    """

    start: int
    end: int
    active: bool
    waiting: bool
    ended: bool = False


def combined(channels: Iterable[Channel], last_ms: int, *, union: bool) -> Channel:
    """Combine watermarks: the minimum of the active channels, the maximum once all are idle, and at least ``last_ms``, the result
    of the previous epoch.

    A channel that becomes active again behind ``last_ms`` holds the result back (splits and connected inputs: Flink's
    CombinedWatermarkStatus); in a ``union`` it does not count until it has caught up (StatusWatermarkValve). All channels that
    count are at or ahead of the result, so the watermarks alone determine them.
    """
    given = list(channels)
    if len(given) == 1 and given[0].active and last_ms <= given[0].start < MAX_MS:
        return given[0]  # the usual case
    unfinished = [c for c in given if c.start < MAX_MS]  # a final watermark holds no other back

    def least(ms: int, ends: Iterable[int]) -> int:
        return max(ms, min((end for end in ends if end >= ms or not union), default=ms))

    start = least(last_ms, (c.start for c in unfinished if c.active))
    end = least(start, (c.end for c in unfinished if c.active))
    waiting = any(c.waiting for c in unfinished)
    running = (c.end for c in unfinished if not c.ended)
    end = least(end, (c.end for c in unfinished if c.waiting)) if waiting else max((end, *running))
    return Channel(start, end, any(c.active for c in unfinished), waiting, all(c.ended for c in given))


def delayed(channel: Channel, delay_ms: int) -> Channel:
    """The channel with its watermark behind; the final watermark stays final."""
    if not delay_ms:
        return channel
    start, end = (ms if ms == MAX_MS else max(MIN_MS, ms - delay_ms) for ms in (channel.start, channel.end))
    return replace(channel, start=start, end=end)


def source_channel(splits: Splits, last_ms: int) -> Channel:
    """The watermark of a source, or an assigner of timestamps: the combined watermark of its splits."""
    channels = [
        Channel(splits.starts[split], end, split in splits.active, split in splits.waiting) for split, end in splits.ends.items()
    ]
    if splits.no_splits_yet:
        channels.append(Channel(MIN_MS, MIN_MS, True, True))
    return replace(combined(channels, last_ms, union=False), ended=splits.ended)


@dataclass(frozen=True)
class EventTime:
    """The event time of one of an operator's inputs over an epoch.

    All its elements see at least the watermark ``start``; elements of later epochs see at least ``end``. ``apart``: the two
    inputs have no origin in common, so only time orders their elements.
    """

    start: int
    end: int
    apart: bool


@dataclass(frozen=True)
class Watermarks:
    """All operators' watermarks over one epoch, by operator id. ``inputs``: by uid, the watermarks of each combined input (a
    source's splits, and unions) at the end of the epoch. ``first``: for operators with two inputs, the event time of the first
    input, if it has watermarks."""

    windows: Mapping[int, Window]
    inputs: Mapping[str, list[int]]
    first: Mapping[int, EventTime]


def watermarks_of(graph: JobGraph, context: EpochContext, splits: Mapping[int, Splits]) -> Watermarks:
    """All operators' watermarks in an epoch, which tasks and driver compute from the splits of the sources."""
    channels: dict[int, Channel] = {}
    windows: dict[int, Window] = {}
    inputs: dict[str, list[int]] = {}
    first: dict[int, EventTime] = {}
    for operator in graph.operators:
        before = context.watermarks.get(operator.uid, MIN_MS)
        last = context.input_watermarks.get(operator.uid, ())
        if isinstance(operator.spec, WatermarkSpec):
            channel = source_channel(splits[operator.id], last[0] if last else MIN_MS)
            inputs[operator.uid] = [channel.end]
        else:
            united = [
                combined(
                    [channels[e.upstream] for e in operator.inputs if e.ordinal == ordinal],
                    last[ordinal] if ordinal < len(last) else before,
                    union=True,
                )
                for ordinal in sorted({e.ordinal for e in operator.inputs})
            ]
            if len(united) < len(operator.inputs):
                inputs[operator.uid] = [c.end for c in united]
            channel = united[0] if len(united) == 1 else combined(united, before, union=False)
        channels[operator.id] = delayed(channel, operator.spec.watermark_delay_ms)
        drain = context.drain or (bool(operator.origins) and operator.origins <= set(context.ended))
        start = max(before, channel.start)
        windows[operator.id] = window = Window(before, start, MAX_MS if drain else max(start, channel.end))
        if not isinstance(operator.spec, WatermarkSpec) and len(united) > 1:
            origins = [_origins(graph, operator, ordinal) for ordinal in (0, 1)]
            if all(strategy.emits_watermarks for strategy in origins[0].values()):
                first[operator.id] = _event_time(united[0], window, apart=origins[0].keys().isdisjoint(origins[1]))
    return Watermarks(windows, inputs, first)


def _origins(graph: JobGraph, operator: Operator, ordinal: int) -> dict[int, WatermarkStrategy]:
    """The watermark origins of an operator's input, with their strategies."""
    upstream = [graph.by_id[edge.upstream] for edge in operator.inputs if edge.ordinal == ordinal]
    specs = {origin: graph.by_id[origin].spec for o in upstream for origin in o.origins}
    return {origin: spec.strategy for origin, spec in specs.items() if isinstance(spec, WatermarkSpec)}


def _event_time(channel: Channel, window: Window, *, apart: bool) -> EventTime:
    start = max(window.start, channel.start) if channel.active else window.start
    end = channel.end if channel.active else max(channel.end, window.end)
    ended = window.end == MAX_MS or channel.ended
    return EventTime(start, MAX_MS if ended else max(start, end), apart)
