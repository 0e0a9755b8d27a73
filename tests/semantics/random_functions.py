"""What the operators of random jobs do. Results tell of everything that an operator sees, so that every difference shows.

Elements may come as tuples, where a stream has no type; they are told by their places.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
from semantics_programs import Mean, mix

import forkpoint as fp

TTL = 9


class El(NamedTuple):
    key: str
    n: int
    ts: int
    x: int


SIDE = fp.OutputTag("side", El)
LATE = fp.OutputTag("late", El)
LEFT_LATE = fp.OutputTag("left-late", El)
RIGHT_LATE = fp.OutputTag("right-late", El)
RULES = fp.MapStateDescriptor("rules", int, int)
FIRED = fp.ValueStateDescriptor("fired", int, 0)
BY_EVENT_TIME = (
    fp.StateTtlConfig.new_builder(TTL)
    .set_ttl_time_characteristic(fp.StateTtlConfig.TtlTimeCharacteristic.EventTime)
    .set_update_type(fp.StateTtlConfig.UpdateType.OnReadAndWrite)
    .build()
)


def digest(*parts):
    """The same in every process, unlike hash()."""
    return crc32(repr(parts).encode()) % 1_000_003


def plain(e):
    return tuple(e)


def made(key, e, *parts):
    """An element that an operator made of another: of its time, with what the operator saw."""
    return El(str(key), e[1], e[2], digest(plain(e), *parts))


def aging(descriptor):
    descriptor.enable_time_to_live(BY_EVENT_TIME)
    return descriptor


class States:
    value = fp.ValueStateDescriptor("value", int)
    fuel = fp.ValueStateDescriptor("fuel", int, 4)
    items = fp.ListStateDescriptor("items", int)
    table = fp.MapStateDescriptor("table", int, int)
    reduced = fp.ReducingStateDescriptor("reduced", mix, int)
    mean = fp.AggregatingStateDescriptor("mean", Mean(), tuple[int, int])
    young = aging(fp.ValueStateDescriptor("young", int))
    young_items = aging(fp.ListStateDescriptor("young-items", int))
    young_table = aging(fp.MapStateDescriptor("young-table", int, int))

    def act(self, seed, now, timers, *, from_timer=False):
        """Two deeds that the seed tells."""
        for deed in (seed % 23, seed // 23 % 23):
            x = seed % 7
            if deed < 7:
                if from_timer:
                    if self.fuel.value() == 0:
                        continue
                    self.fuel.update(self.fuel.value() - 1)
                timers.register_event_time_timer(now + (seed // 29) % 30 - 6)
            match deed:
                case 7 | 8:
                    timers.delete_event_time_timer(now + (seed // 31) % 20 - 4)
                case 9:
                    self.value.update(mix(self.value.value() or 0, x))
                case 10:
                    self.items.add(x)
                case 11:
                    self.items.update([x, *list(self.items.get())[-3:]])
                case 12:
                    self.table.put(x, now)
                case 13:
                    self.table.remove(x)
                case 14:
                    self.reduced.add(x)
                case 15:
                    self.mean.add(x)
                case 16:
                    self.young.update(mix(self.young.value() or 0, x))
                case 17:
                    self.young_items.add(x)
                case 18:
                    self.young_table.put(x % 3, now)
                case 19:
                    (self.items, self.table, self.reduced, self.young_items)[seed // 37 % 4].clear()
                case 20:
                    self.young_items.update([*self.young_items.get()][:2])

    def seen(self, seed):
        """All state; of what ages by being read only some, so that it ages."""
        found = (
            self.value.value(),
            tuple(self.items.get()),
            sorted(self.table.items()),
            self.reduced.get(),
            self.mean.get(),
        )
        match seed % 6:
            case 0:
                return *found, self.young.value()
            case 1:
                return *found, tuple(self.young_items.get())
            case 2:
                return *found, sorted(self.young_table.items())
            case 3:
                return *found, 1 in self.young_table
        return found


class Machine(States, fp.KeyedProcessFunction):
    """State of every kind, timers that are set and taken back; a third of what it emits goes to the side."""

    def __init__(self, seed):
        self.seed = seed

    def process_element(self, e, ctx):
        seed, timers = mix(e[3], self.seed), ctx.timer_service()
        self.act(seed, e[2], timers)
        out = made(ctx.get_current_key(), e, ctx.timestamp(), timers.current_watermark(), self.seen(seed))
        yield (SIDE, out) if seed % 3 == 0 else out

    def on_timer(self, timestamp, ctx):
        seed, timers = mix(timestamp % 1009, self.seed), ctx.timer_service()
        self.act(seed, timestamp, timers, from_timer=True)
        key, watermark = ctx.get_current_key(), timers.current_watermark()
        yield El(str(key), timestamp % 4, timestamp, digest(ctx.timestamp(), watermark, self.seen(seed)))


class Meeting(States, fp.KeyedCoProcessFunction):
    def __init__(self, seed):
        self.seed = seed

    def process_element1(self, e, ctx):
        yield self.met(e, ctx, 1)

    def process_element2(self, e, ctx):
        yield self.met(e, ctx, 2)

    def met(self, e, ctx, side):
        seed, timers = mix(e[3], self.seed + side), ctx.timer_service()
        self.act(seed, e[2], timers)
        return made(ctx.get_current_key(), e, side, ctx.timestamp(), timers.current_watermark(), self.seen(seed))

    on_timer = Machine.on_timer


class Ruled(States, fp.KeyedBroadcastProcessFunction):
    rules = RULES

    def __init__(self, seed):
        self.seed = seed

    def process_element(self, e, ctx):
        rules = tuple(ctx.get_broadcast_state(RULES).items())
        seed, timers = mix(e[3], self.seed + len(rules)), ctx.timer_service()
        self.act(seed, e[2], timers)
        yield made(ctx.get_current_key(), e, rules, ctx.timestamp(), timers.current_watermark(), self.seen(seed))

    def process_broadcast_element(self, e, ctx):
        rules, x = ctx.get_broadcast_state(RULES), e[3]
        match x % 4:
            case 0:
                rules.remove(e[1])
            case 1:
                ctx.apply_to_keyed_state(Ruled.items, lambda key, items: items.add(x))
            case 2:
                ctx.apply_to_keyed_state(Ruled.value, lambda key, value: value.update(mix(value.value(), x)))
        if x % 4:
            rules.put(e[1], x)

    def on_timer(self, timestamp, ctx):
        rules = tuple(ctx.get_broadcast_state(RULES).items())
        for out in Machine.on_timer(self, timestamp, ctx):
            yield out._replace(x=digest(out.x, rules))


class Buckets(fp.KeyedProcessFunction):
    """What came at each time, told a while later: whatever the order of elements that the watermark lets in."""

    sums = fp.MapStateDescriptor("sums", int, int)

    def __init__(self, wait):
        self.wait = wait

    def process_element(self, e, ctx):
        ts = ctx.timestamp()
        self.sums.put(ts, ((self.sums.get(ts) or 0) + digest(plain(e))) % 1_000_003)
        ctx.timer_service().register_event_time_timer(ts + self.wait)

    def on_timer(self, timestamp, ctx):
        found = sorted(entry for entry in self.sums.items() if entry[0] <= timestamp - self.wait)
        for time, _ in found:
            self.sums.remove(time)
        yield El(str(ctx.get_current_key()), len(found), timestamp, digest(found))


class Tally(fp.KeyedProcessFunction):
    """Counts without telling."""

    count = fp.ValueStateDescriptor("count", int, 0)
    total = fp.MapStateDescriptor("total", int, int)

    def process_element(self, e, ctx):
        self.count.update(self.count.value() + 1)
        self.total.put(e[1], ((self.total.get(e[1]) or 0) + e[3]) % 1_000_003)
        yield El(*e)


class Gate(fp.ProcessFunction):
    def __init__(self, seed):
        self.seed = seed

    def process_element(self, e, ctx):
        out = El(e[0], e[1], e[2], mix(e[3], self.seed))
        if out.x % 3 == 0:
            yield SIDE, out
        elif ctx.timestamp() is not None or out.x % 3 == 1:
            yield out


class Batched(fp.KeyedBatchFunction):
    """For each element how many came so far, and the running sum."""

    count = fp.ValueStateDescriptor("count", int)
    last = fp.MapStateDescriptor("last", str, int)

    def process_batch(self, table, ctx):
        count, last = ctx.get_state(self.count), ctx.get_state(self.last)
        before = count.read().fill_null(0).to_numpy(zero_copy_only=False)
        numbers = np.arange(table.num_rows) - ctx.offsets[:-1][ctx.key_index] + 1 + before[ctx.key_index]
        count.write(pa.array(before + np.diff(ctx.offsets)))
        names, seen = table["key"].to_pylist(), last.read()
        last.write(
            [
                {**(seen[k] or {}), **dict(zip(names[a:b], numbers[a:b].tolist(), strict=True))}
                for k, (a, b) in enumerate(pairwise(ctx.offsets.tolist()))
            ]
        )
        x = pa.array((table["x"].to_numpy() * 31 + numbers) % 1_000_003)
        return table.select(["key", "n", "ts"]).append_column("x", x)


class Total(fp.AggregateFunction):
    """Whatever the order of the elements."""

    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, value, accumulator):
        return (accumulator[0] + 1, (accumulator[1] + digest(plain(value))) % 1_000_003)

    def get_result(self, accumulator):
        return El("", accumulator[0], 0, accumulator[1])

    def merge(self, a, b):
        return (a[0] + b[0], (a[1] + b[1]) % 1_000_003)


class InOrder(fp.ProcessWindowFunction):
    """All elements as they came, with state of the key and of the window."""

    seen = fp.ValueStateDescriptor("seen", int, 0)

    def __init__(self, *, in_order, merging):
        self.in_order, self.merging = in_order, merging

    def process(self, key, context, elements):
        found = [plain(e) for e in elements]
        more = ()
        if self.in_order:
            self.seen.update(mix(self.seen.value(), digest(found)))
            more = (self.seen.value(), context.current_watermark())
            if not self.merging:
                fired = context.window_state().get_state(FIRED)
                fired.update(fired.value() + 1)
                more = (*more, fired.value())
        window = context.window()
        yield El(str(key), len(found), end_of(window), digest(window, found if self.in_order else sorted(found), more))

    def clear(self, context):
        if self.in_order and not self.merging:
            context.window_state().get_state(FIRED).clear()


class Windowed(fp.ProcessWindowFunction):
    """What was reduced or aggregated, with its window."""

    def process(self, key, context, elements):
        (e,) = elements
        yield El(str(key), e[1], end_of(context.window()), digest(context.window(), plain(e)))


def end_of(window):
    return window.end if isinstance(window, fp.TimeWindow) else 0


def pair(left, right):
    return El(left[0], right[1], max(left[2], right[2]), digest(plain(left), plain(right)))


def outer(left, right):
    return El(left[0], left[1], left[2], digest(plain(left), None if right is None else plain(right)))


def grouped(in_order):
    """A function for co-groups."""

    def group(lefts, rights):
        lefts, rights = ([plain(e) for e in side] for side in (lefts, rights))
        order = list if in_order else sorted
        return [El((lefts or rights)[0][0], len(lefts), len(rights), digest(order(lefts), order(rights)))]

    return group if in_order else lambda a, b: [El("", len(a), len(b), group(a, b)[0].x)]


def near(left, right, ctx):
    x = digest(plain(left), plain(right), ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.timestamp())
    return [El(left[0], right[1], ctx.timestamp(), x)]


async def looked_up(e):
    return [El(e[0], e[1], e[2], mix(e[3], k)) for k in range(1 if e[3] % 4 else 0, 2)][: e[3] % 3]


def with_state(e, state):
    state = mix(state or 0, e[3])
    return El(e[0], e[1], e[2], state), None if state % 5 == 0 else state


def flat_with_state(e, state):
    out, state = with_state(e, state)
    return [out, out._replace(x=mix(out.x, 1))][: state % 3 if state is not None else 1], state


def reduced(a, b):
    return El(a[0], (a[1] + b[1]) % 5, b[2], mix(a[3], b[3]))
