"""Keyed functions: timers, state, watermarks, rolling aggregates. Twins of ``src/Timers.java``."""

from __future__ import annotations

from java_inputs import Event
from java_programs import LATE, by_key, fields, mix, mixed, program, with_late
from window_programs import TUMBLING, Elements, Mixed

import forkpoint as fp

SIDE = fp.OutputTag("side")


class Arrivals(fp.KeyedProcessFunction):
    seen = fp.ListStateDescriptor("seen", int)

    def __init__(self, delay):
        self.delay = delay

    def process_element(self, e, ctx):
        self.seen.add(e.seq)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + self.delay)
        yield ctx.get_current_key(), "element", e.seq

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "timer", timestamp, ctx.timestamp(), list(self.seen.get()), ctx.time_domain().name


class Watermarks(fp.KeyedProcessFunction):
    def process_element(self, e, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 6)
        yield ctx.get_current_key(), "element", e.seq, ctx.timer_service().current_watermark()

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "timer", timestamp, ctx.timer_service().current_watermark()


class Quiet(fp.KeyedProcessFunction):
    last = fp.ValueStateDescriptor("last", int)

    def process_element(self, e, ctx):
        if self.last.value() is not None:
            ctx.timer_service().delete_event_time_timer(self.last.value() + 15)
        self.last.update(ctx.timestamp())
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 15)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, self.last.value()
        self.last.clear()


class Chained(fp.KeyedProcessFunction):
    fuel = fp.ValueStateDescriptor("fuel", int)

    def process_element(self, e, ctx):
        self.fuel.update(e.value % 4)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + e.value)

    def on_timer(self, timestamp, ctx):
        left = self.fuel.value()
        yield ctx.get_current_key(), timestamp, left
        if left > 0:
            self.fuel.update(left - 1)
            ctx.timer_service().register_event_time_timer(timestamp + 9)
            if left == 2:
                ctx.timer_service().register_event_time_timer(timestamp - 4)
            if left == 3:
                ctx.timer_service().delete_event_time_timer(timestamp + 1)


class Due(fp.KeyedProcessFunction):
    def process_element(self, e, ctx):
        timers = ctx.timer_service()
        now = timers.current_watermark()
        if now > fp.MIN_WATERMARK:
            timers.register_event_time_timer(now - e.value)
            timers.register_event_time_timer(now)
            timers.register_event_time_timer(now + 1)
        timers.register_event_time_timer(fp.MAX_WATERMARK)
        timers.register_event_time_timer(1 << 50)
        yield ctx.get_current_key(), "element", e.seq

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "timer", timestamp, ctx.timestamp()


class States(fp.KeyedProcessFunction):
    list = fp.ListStateDescriptor("list", int)
    map = fp.MapStateDescriptor("map", str, int)
    reduced = fp.ReducingStateDescriptor("reduced", mix, int)
    mixed = fp.AggregatingStateDescriptor("mixed", Mixed(), int)

    def process_element(self, e, ctx):
        self.list.add(e.seq)
        self.map.put(e.kind, self.map.get(e.kind) + 1 if self.map.contains(e.kind) else 1)
        self.reduced.add(e.seq)
        self.mixed.add(e)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() // 30 * 30 + 29)
        if e.value > 6:
            yield SIDE, (ctx.get_current_key(), "high", e.seq)
        if e.value == 0:
            self.map.remove(e.kind)
            self.list.update([-1, -2])

    def on_timer(self, timestamp, ctx):
        key = ctx.get_current_key()
        yield key, timestamp, [*self.list.get()], sorted(self.map.items()), self.reduced.get(), self.mixed.get()
        yield SIDE, (key, "timer", timestamp)
        if (abs(timestamp) % 20) * (1 if timestamp > 0 else -1) == 9:  # Java's remainder
            self.list.clear()
            self.map.clear()
            self.reduced.clear()
            self.mixed.clear()


class InOrder(fp.KeyedProcessFunction):
    held = fp.MapStateDescriptor("held", int, list[int])

    def process_element(self, e, ctx):
        timestamp = ctx.timestamp()
        if timestamp <= ctx.timer_service().current_watermark():
            yield SIDE, (ctx.get_current_key(), e.seq)
            return
        self.held.put(timestamp, [*(self.held.get(timestamp) or []), e.seq])
        ctx.timer_service().register_event_time_timer(timestamp)

    def on_timer(self, timestamp, ctx):
        for seq in self.held.get(timestamp):
            yield ctx.get_current_key(), seq
        self.held.remove(timestamp)


class Echo(fp.KeyedProcessFunction):
    def process_element(self, e, ctx):
        yield e
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 8 + e.value)

    def on_timer(self, timestamp, ctx):
        yield Event(-1, ctx.get_current_key(), timestamp, 0, "echo")


class Running(fp.FlatMapFunction):
    sum = fp.ValueStateDescriptor("sum", int)

    def flat_map(self, e):
        now = (self.sum.value() or 0) + e.value
        for i in range(e.value % 3):
            yield e.key, e.seq, now, i
        if now > 20:
            self.sum.clear()
        else:
            self.sum.update(now)


class Punctuated(fp.WatermarkGenerator):
    def on_event(self, e, timestamp, output):
        if e.kind == "rule":
            output.emit_watermark(timestamp - 3)
        elif e.value == 9:
            output.emit_watermark(timestamp - 60)

    def on_periodic_emit(self, output):
        pass


class Unkeyed(fp.ProcessFunction):
    def process_element(self, e, ctx):
        yield "all", e.seq, ctx.timestamp(), ctx.timer_service().current_watermark()
        if e.value > 6:
            yield SIDE, ("all", e.seq)


def with_side(results):
    return {"main": results, "side": results.get_side_output(SIDE)}


@program(bound=10)
def timers_arrival_order(events):
    return {"main": by_key(events).process(Arrivals(20))}


@program(bound=10)
def timers_at_once(events):
    return {"main": by_key(events).process(Arrivals(-30))}


@program(bound=10)
def watermark_seen(events):
    return {"main": by_key(events).process(Watermarks())}


@program(bound=10)
def timers_deleted(events):
    return {"main": by_key(events).process(Quiet())}


@program(bound=10)
def timers_in_timers(events):
    return {"main": by_key(events).process(Chained())}


@program(bound=10)
def timers_due(events):
    return {"main": by_key(events).process(Due())}


@program(bound=10)
def state_kinds(events):
    return with_side(by_key(events).process(States()))


@program(bound=25)
def temporal_order(events):
    return with_side(by_key(events).process(InOrder()))


@program(bound=10)
def timers_behind_timers(events):
    return {"main": by_key(by_key(events).process(Echo(), Event)).process(Arrivals(11))}


@program(bound=10)
def watermark_behind_timers(events):
    return {"main": by_key(by_key(events).process(Echo(), Event)).process(Watermarks())}


@program(bound=10)
def windows_behind_timers(events):
    windows = by_key(by_key(events).process(Echo(), Event)).window(TUMBLING.of(20))
    return with_late(windows.side_output_late_data(LATE).process(Elements()))


@program(bound=10)
def process_without_key(events):
    return with_side(events.process(Unkeyed()))


@program(bound=10)
def keyed_flat_map(events):
    return {"main": by_key(events).flat_map(Running())}


@program(bound=10)
def keyed_reduce(events):
    return {"main": fields(by_key(events).reduce(mixed))}


@program(bound=10)
def rolling_fields(events):
    keyed = by_key(events)
    return {name: fields(getattr(keyed, name)("value")) for name in ("sum", "min", "max", "min_by", "max_by")}


@program(strategy=fp.WatermarkStrategy.for_generator(Punctuated))
def punctuated_watermarks(events):
    return {"main": by_key(events).process(Arrivals(20))}


@program(strategy=fp.WatermarkStrategy.no_watermarks())
def no_watermarks(events):
    return {"main": by_key(events).process(Arrivals(20))}
