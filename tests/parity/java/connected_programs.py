"""Two inputs: connected streams, broadcast state, union. Twins of ``src/Connected.java``."""

from __future__ import annotations

from java_inputs import Event
from java_programs import by_key, program
from join_programs import keyed, of
from timer_programs import SIDE, Arrivals, with_side

import forkpoint as fp


class Ledger(fp.KeyedCoProcessFunction):
    open_seqs = fp.ListStateDescriptor("open", int)
    matched = fp.ValueStateDescriptor("matched", int)

    def process_element1(self, e, ctx):
        self.open_seqs.add(e.seq)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 15)
        yield ctx.get_current_key(), 1, e.seq, list(self.open_seqs.get()), self.matched.value(), ctx.timestamp()
        if e.value > 6:
            yield SIDE, (ctx.get_current_key(), 1, e.seq)

    def process_element2(self, e, ctx):
        self.matched.update((self.matched.value() or 0) + 1)
        yield ctx.get_current_key(), 2, e.seq, list(self.open_seqs.get()), self.matched.value(), ctx.timestamp()
        ctx.timer_service().delete_event_time_timer(ctx.timestamp() + 15)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 4)
        if e.value == 0:
            self.open_seqs.clear()

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "timer", timestamp, list(self.open_seqs.get()), self.matched.value()
        yield SIDE, (ctx.get_current_key(), "timer", timestamp)


class CoWatermarks(fp.KeyedCoProcessFunction):
    def process_element1(self, e, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 5)
        yield ctx.get_current_key(), 1, e.seq, ctx.timer_service().current_watermark()

    def process_element2(self, e, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 9)
        yield ctx.get_current_key(), 2, e.seq, ctx.timer_service().current_watermark()

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "timer", timestamp, ctx.timer_service().current_watermark()


class Numbered(fp.CoMapFunction):
    def map1(self, e):
        return "all", 1, e.seq

    def map2(self, e):
        return "all", 2, e.seq


class Latest(fp.CoFlatMapFunction):
    latest = fp.ValueStateDescriptor("latest", int)

    def flat_map1(self, e):
        if self.latest.value() is not None:
            yield e.key, e.seq, self.latest.value()

    def flat_map2(self, e):
        self.latest.update(e.seq)


class Unkeyed(fp.CoProcessFunction):
    def process_element1(self, e, ctx):
        yield "all", 1, e.seq, ctx.timestamp(), ctx.timer_service().current_watermark()

    def process_element2(self, e, ctx):
        yield "all", 2, e.seq, ctx.timestamp(), ctx.timer_service().current_watermark()


@program(bound=10)
def keyed_co_process(events):
    return with_side(keyed(events, "left").connect(keyed(events, "right")).process(Ledger()))


@program(bound=10)
def co_process_watermarks(events):
    return {"main": keyed(events, "left").connect(keyed(events, "right")).process(CoWatermarks())}


@program(bound=10)
def co_map(events):
    return {"main": of(events, "left").connect(of(events, "right")).map(Numbered())}


@program(bound=10)
def co_flat_map_keyed(events):
    return {"main": keyed(events, "left").connect(keyed(events, "right")).flat_map(Latest())}


@program(bound=10)
def co_process(events):
    return {"main": of(events, "left").connect(of(events, "right")).process(Unkeyed())}


@program(bound=10)
def union(events):
    return {"main": by_key(of(events, "right").union(of(events, "rule"), of(events, "left"))).process(Arrivals(12))}


RULES = fp.MapStateDescriptor("rules", str, int)
SEEN = fp.ListStateDescriptor("seen", int)


class Ruled(fp.KeyedBroadcastProcessFunction):
    seen = SEEN

    def process_element(self, e, ctx):
        self.seen.add(e.seq)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 25)
        rules = sorted(ctx.get_broadcast_state(RULES).items())
        yield ctx.get_current_key(), "element", e.seq, rules, ctx.timestamp()

    def process_broadcast_element(self, e, ctx):
        rules = ctx.get_broadcast_state(RULES)
        rules.put(e.key, e.value)
        if e.value < 3:
            rules.remove("a")
        out = []

        def show(key, state):
            out.append((key, "rule", e.seq, list(state.get())))
            if e.value > 5:
                state.clear()

        ctx.apply_to_keyed_state(SEEN, show)
        return out

    def on_timer(self, timestamp, ctx):
        rules = sorted(ctx.get_broadcast_state(RULES).items())
        yield ctx.get_current_key(), "timer", timestamp, rules, list(self.seen.get())


class Unruled(fp.BroadcastProcessFunction):
    def process_element(self, e, ctx):
        yield e.key, e.seq, sorted(ctx.get_broadcast_state(RULES).items()), ctx.current_watermark()

    def process_broadcast_element(self, e, ctx):
        ctx.get_broadcast_state(RULES).put(e.key, e.value + e.seq)


def others(events):
    return events.filter(lambda e: e.kind != "rule")


def ruled(events, rules):
    return {"main": by_key(others(events)).connect(rules.broadcast(RULES)).process(Ruled())}


@program(bound=10)
def broadcast_keyed(events):
    """Behind an exchange, rules have the place of any element; straight from a source, that of the watermark behind them."""
    return ruled(events, of(events, "rule").rebalance().map(lambda e: e, Event))


@program(bound=10)
def broadcast(events):
    return {"main": others(events).connect(of(events, "rule").broadcast(RULES)).process(Unruled())}
