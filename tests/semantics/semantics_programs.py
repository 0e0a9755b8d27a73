"""Random programs: a function whose elements say what it does to its state and timers, and an interpreter of the same
programs that shares nothing with the engine."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

import forkpoint as fp

MIN = -(2**63)
MAX = 2**63 - 1
FUEL = 6  # how many timers a key's timers may register, so that programs end


class Event(NamedTuple):
    key: str
    ts: int
    ops: tuple  # of tuples: what to do, with operands


class Mean(fp.AggregateFunction):
    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator):
        return accumulator[0] * 1000 // accumulator[1]

    def merge(self, a, b):
        return (a[0] + b[0], a[1] + b[1])


def mix(a, b):
    """Neither commutative nor associative with 0 aside: shows every difference in order."""
    return (a * 31 + b) % 1_000_003


class Interpreter(fp.KeyedProcessFunction):
    """Does what each element says. ``timer_ops[t % len]`` is what the timer for ``t`` does."""

    value = fp.ValueStateDescriptor("value", int)
    fuel = fp.ValueStateDescriptor("fuel", int, FUEL)
    items = fp.ListStateDescriptor("items", int)
    table = fp.MapStateDescriptor("table", int, int)
    reduced = fp.ReducingStateDescriptor("reduced", mix, int)
    mean = fp.AggregatingStateDescriptor("mean", Mean(), tuple[int, int])

    def __init__(self, timer_ops):
        self.timer_ops = timer_ops

    def process_element(self, event, ctx):
        for op in event.ops:
            self.run(op, event.ts, ctx, from_timer=False)
        yield (
            ctx.get_current_key(),
            "element",
            event.ts,
            ctx.timestamp(),
            ctx.timer_service().current_watermark(),
            *self.seen(),
        )

    def on_timer(self, timestamp, ctx):
        for op in self.timer_ops[timestamp % len(self.timer_ops)]:
            self.run(op, timestamp, ctx, from_timer=True)
        yield (
            ctx.get_current_key(),
            ctx.time_domain().name,
            timestamp,
            ctx.timestamp(),
            ctx.timer_service().current_watermark(),
            *self.seen(),
        )

    def seen(self):
        return (
            self.value.value(),
            tuple(self.items.get()),
            tuple(sorted(self.table.items())),
            self.reduced.get(),
            self.mean.get(),
        )

    def run(self, op, now, ctx, *, from_timer):
        timers = ctx.timer_service()
        match op:
            case ("register", delta):
                if from_timer:
                    left = self.fuel.value()
                    if left == 0:
                        return
                    self.fuel.update(left - 1)
                timers.register_event_time_timer(now + delta)
            case ("delete", delta):
                timers.delete_event_time_timer(now + delta)
            case ("value", x):
                self.value.update(mix(self.value.value() or 0, x))
            case ("add", x):
                self.items.add(x)
            case ("update", *xs):
                self.items.update(xs)
            case ("put", k, x):
                self.table.put(k, x)
            case ("bump", k):
                if k in self.table:
                    self.table[k] = self.table[k] + 1
            case ("remove", k):
                self.table.remove(k)
            case ("reduce", x):
                self.reduced.add(x)
            case ("mean", x):
                self.mean.add(x)
            case ("clear", name):
                getattr(self, name).clear()


class Reference:
    """Flink's semantics for one split with a watermark behind every element, in plain Python.

    The watermark passes every millisecond on its way, so a timer sees the watermark of its own time; one whose time has
    passed already fires as soon as the watermark moves.
    """

    def __init__(self, timer_ops, bound):
        self.timer_ops, self.bound = timer_ops, bound
        self.watermark = MIN
        self.keys = {}
        self.timers = set()
        self.out = []

    def run(self, events):
        for event in events:
            self.process(event)
            new = event.ts - self.bound - 1
            if new > self.watermark:
                self.advance(new)
        self.advance(MAX)
        return self.out

    def process(self, event):
        for op in event.ops:
            self.do(event.key, op, event.ts, from_timer=False)
        self.out.append((event.key, "element", event.ts, event.ts, self.watermark, *self.seen(event.key)))

    def advance(self, new):
        moment = self.watermark + 1
        while self.timers and min(self.timers)[0] <= new:
            time, key = min(self.timers)
            self.timers.discard((time, key))
            moment = max(moment, time)
            self.watermark = moment
            for op in self.timer_ops[time % len(self.timer_ops)]:
                self.do(key, op, time, from_timer=True)
            self.out.append((key, "EVENT_TIME", time, time, self.watermark, *self.seen(key)))
        self.watermark = new

    def state(self, key):
        return self.keys.setdefault(key, {"value": None, "fuel": FUEL, "items": [], "table": {}, "reduced": None, "mean": None})

    def seen(self, key):
        s = self.state(key)
        mean = None if s["mean"] is None else sum(s["mean"]) * 1000 // len(s["mean"])
        return (s["value"], tuple(s["items"]), tuple(sorted(s["table"].items())), s["reduced"], mean)

    def do(self, key, op, now, *, from_timer):
        s = self.state(key)
        match op:
            case ("register", delta):
                if from_timer:
                    if s["fuel"] == 0:
                        return
                    s["fuel"] -= 1
                self.timers.add((now + delta, key))
            case ("delete", delta):
                self.timers.discard((now + delta, key))
            case ("value", x):
                s["value"] = mix(s["value"] or 0, x)
            case ("add", x):
                s["items"].append(x)
            case ("update", *xs):
                s["items"] = list(xs)
            case ("put", k, x):
                s["table"][k] = x
            case ("bump", k):
                if k in s["table"]:
                    s["table"][k] += 1
            case ("remove", k):
                s["table"].pop(k, None)
            case ("reduce", x):
                s["reduced"] = x if s["reduced"] is None else mix(s["reduced"], x)
            case ("mean", x):
                s["mean"] = [*(s["mean"] or []), x]
            case ("clear", name):
                s[name] = {"items": [], "table": {}}.get(name)


deltas = st.integers(-12, 25)
small = st.integers(0, 9)
operations = st.one_of(
    st.tuples(st.just("register"), deltas),
    st.tuples(st.just("register"), deltas),
    st.tuples(st.just("delete"), deltas),
    st.tuples(st.just("value"), small),
    st.tuples(st.just("add"), small),
    st.lists(small, max_size=3).map(lambda xs: ("update", *xs)),
    st.tuples(st.just("put"), st.integers(0, 3), small),
    st.tuples(st.just("bump"), st.integers(0, 3)),
    st.tuples(st.just("remove"), st.integers(0, 3)),
    st.tuples(st.just("reduce"), small),
    st.tuples(st.just("mean"), small),
    st.tuples(st.just("clear"), st.sampled_from(["value", "items", "table", "reduced", "mean"])),
)
programs = st.lists(st.lists(operations, max_size=3).map(tuple), min_size=1, max_size=5)


@st.composite
def inputs(draw, size=40, keys="abc"):
    """Events with disorder: time goes on by small steps, and each element may be behind or ahead of it."""
    count = draw(st.integers(1, size))
    now, events = draw(st.integers(-20, 20)), []
    for _ in range(count):
        now += draw(st.integers(0, 6))
        ts = now - draw(st.one_of(st.just(0), st.integers(0, 15)))
        events.append(Event(draw(st.sampled_from(keys)), ts, tuple(draw(st.lists(operations, max_size=3)))))
    return events


def strategy(bound):
    """The watermark strategy that the reference assumes."""
    return fp.WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_assigner(lambda e, _: e.ts)


def by_key(outputs):
    found = {}
    for output in outputs:
        found.setdefault(output[0], []).append(output)
    return found
