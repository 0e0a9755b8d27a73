"""Programs over two inputs, and models of them that share nothing with the engine."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from hypothesis import strategies as st
from semantics_programs import MAX, MIN, Event, Interpreter, Reference, deltas, inputs, small, strategy

import forkpoint as fp

RULES = fp.MapStateDescriptor("rules", str, int)


class CoInterpreter(fp.KeyedCoProcessFunction):
    """The interpreter with two inputs; what it emits tells from which input an element came."""

    value = Interpreter.value
    fuel = Interpreter.fuel
    items = Interpreter.items
    table = Interpreter.table
    reduced = Interpreter.reduced
    mean = Interpreter.mean

    def __init__(self, timer_ops):
        self.timer_ops = timer_ops

    def process_element1(self, event, ctx):
        for op in event.ops:
            self.run(op, event.ts, ctx, from_timer=False)
        yield (
            ctx.get_current_key(),
            "first",
            event.ts,
            ctx.timestamp(),
            ctx.timer_service().current_watermark(),
            *self.seen(),
        )

    def process_element2(self, event, ctx):
        for op in event.ops:
            self.run(op, event.ts, ctx, from_timer=False)
        yield (
            ctx.get_current_key(),
            "second",
            event.ts,
            ctx.timestamp(),
            ctx.timer_service().current_watermark(),
            *self.seen(),
        )

    on_timer = Interpreter.on_timer
    run = Interpreter.run
    seen = Interpreter.seen


def is_second(event):
    return len(event.ops) % 2 == 1 or event.ts % 3 == 0


def named(outputs, second=is_second):
    """The reference's outputs with the names of the inputs; ``outputs`` and their events are in the same order."""
    events, found = iter(second), []
    for output in outputs:
        if output[1] == "element":
            output = (output[0], "second" if next(events) else "first", *output[2:])
        found.append(output)
    return found


def split_in_two(env, source, timer_ops, bound=3):
    """One split whose elements go to both inputs, so that there is one order for all of them."""
    stream = env.from_source(source, strategy(bound), "in").uid("in")
    first, second = stream.filter(lambda e: not is_second(e)), stream.filter(is_second)
    keyed = first.connect(second).key_by(lambda e: e.key, lambda e: e[0], str)
    return keyed.process(CoInterpreter(timer_ops)).uid("both")


def places(events, bound):
    """Each element's place in event time: the watermark of its own split just ahead of it."""
    found, watermark = [], MIN
    for event in events:
        found.append(watermark)
        watermark = max(watermark, event.ts - bound - 1)
    return found


class Merging(Reference):
    """Two splits in one epoch, which is the last one, merged by their places."""

    def run_both(self, first, second):
        merged = [
            (v, side, i, event)
            for side, events in enumerate((first, second))
            for i, (v, event) in enumerate(zip(places(events, self.bound), events, strict=True))
        ]
        merged.sort(key=lambda place: place[:3])
        for v, _, _, event in merged:
            if v > self.watermark:
                self.advance(v)
            self.process(event)
        self.advance(MAX)
        return named(self.out, [side == 1 for _, side, _, _ in merged])


# -- broadcast ---------------------------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """What a broadcast element does. ``applied``: what it does to the keyed states of every key."""

    ts: int
    op: tuple
    applied: tuple


class Ruled(fp.KeyedBroadcastProcessFunction):
    """State of each kind, timers, and rules; everything that is emitted tells all that can be seen."""

    rules = RULES
    value = fp.ValueStateDescriptor("value", int, 7)
    items = fp.ListStateDescriptor("items", int)
    table = fp.MapStateDescriptor("table", int, int)

    def process_element(self, event, ctx):
        for op in event.ops:
            match op:
                case ("register", delta):
                    ctx.timer_service().register_event_time_timer(event.ts + delta)
                case ("delete", delta):
                    ctx.timer_service().delete_event_time_timer(event.ts + delta)
                case ("value", x):
                    self.value.update(self.value.value() * 3 + x)
                case ("add", x):
                    self.items.add(x)
                case ("put", k, x):
                    self.table.put(k, x)
                case ("clear", name):
                    getattr(self, name).clear()
        yield ctx.get_current_key(), "element", event.ts, ctx.timestamp(), ctx.current_watermark(), *self.seen(ctx)

    def process_broadcast_element(self, rule, ctx):
        state = ctx.get_broadcast_state(self.rules)
        match rule.op:
            case ("put", name, x):
                state.put(name, x)
            case ("bump", name):
                state[name] = (state[name] or 0) * 2 + 1
            case ("remove", name):
                del state[name]
            case ("clear",):
                state.clear()
        for name, x in rule.applied:
            ctx.apply_to_keyed_state(getattr(type(self), name), APPLY[name](x))
        yield "rule", rule.ts, ctx.timestamp(), ctx.current_watermark(), tuple(state.items())

    def on_timer(self, timestamp, ctx):
        if timestamp % 2:
            self.items.add(timestamp)
        if timestamp % 5 == 0:
            ctx.timer_service().register_event_time_timer(timestamp + 3)
        yield (
            ctx.get_current_key(),
            ctx.time_domain().name,
            timestamp,
            ctx.timestamp(),
            ctx.current_watermark(),
            *self.seen(ctx),
        )

    def seen(self, ctx):
        rules = ctx.get_broadcast_state(self.rules)
        return (
            tuple(rules.items()),
            self.value.value(),
            tuple(self.items.get()),
            tuple(sorted(self.table.items())),
        )


def _value(x):
    return lambda key, state: state.update(None if x == 0 else state.value() + x)


def _items(x):
    return lambda key, state: state.clear() if x == 0 else state.add(x)


def _table(x):
    return lambda key, state: state.clear() if x == 0 else state.put(x, len(key))


APPLY = {"value": _value, "items": _items, "table": _table}


class RuledModel:
    """The same for one split with a watermark behind every element, and for rules ahead of them, in plain Python."""

    def __init__(self, bound):
        self.bound, self.watermark = bound, MIN
        self.rules, self.keys, self.timers, self.out, self.ruled = {}, {}, set(), [], []

    def run(self, elements):
        for element in elements:
            if isinstance(element, Rule):
                self.move(element.ts - 1)  # ahead of the timers at the watermark that it brings
                self.rule(element)
            else:
                self.element(element)
            self.move(element.ts)
        self.advance(MAX)
        return self.out

    def move(self, ts):
        if ts - self.bound - 1 > self.watermark:
            self.advance(ts - self.bound - 1)

    def state(self, key):
        return self.keys.setdefault(key, {"value": None, "items": [], "table": {}})

    def seen(self, key):
        s = self.state(key)
        value = 7 if s["value"] is None else s["value"]
        return tuple(self.rules.items()), value, tuple(s["items"]), tuple(sorted(s["table"].items()))

    def element(self, event):
        s = self.state(event.key)
        for op in event.ops:
            match op:
                case ("register", delta):
                    self.timers.add((event.ts + delta, event.key))
                case ("delete", delta):
                    self.timers.discard((event.ts + delta, event.key))
                case ("value", x):
                    s["value"] = (7 if s["value"] is None else s["value"]) * 3 + x
                case ("add", x):
                    s["items"].append(x)
                case ("put", k, x):
                    s["table"][k] = x
                case ("clear", name):
                    s[name] = {"items": [], "table": {}}.get(name)
        self.out.append((event.key, "element", event.ts, event.ts, self.watermark, *self.seen(event.key)))

    def rule(self, rule):
        match rule.op:
            case ("put", name, x):
                self.rules[name] = x
            case ("bump", name):
                self.rules[name] = self.rules.get(name, 0) * 2 + 1
            case ("remove", name):
                self.rules.pop(name, None)
            case ("clear",):
                self.rules.clear()
        for name, x in rule.applied:
            for key, s in self.keys.items():
                if s[name] is None or s[name] in ([], {}):
                    continue
                match name, x:
                    case "value", 0:
                        s["value"] = None
                    case "value", _:
                        s["value"] += x
                    case "items", 0:
                        s["items"] = []
                    case "items", _:
                        s["items"].append(x)
                    case "table", 0:
                        s["table"] = {}
                    case "table", _:
                        s["table"][x] = len(key)
        self.ruled.append(("rule", rule.ts, rule.ts, self.watermark, tuple(self.rules.items())))

    def advance(self, new):
        moment = self.watermark + 1
        while self.timers and min(self.timers)[0] <= new:
            time, key = min(self.timers)
            self.timers.discard((time, key))
            self.watermark = moment = max(moment, time)
            if time % 2:
                self.state(key)["items"].append(time)
            if time % 5 == 0:
                self.timers.add((time + 3, key))
            self.out.append((key, "EVENT_TIME", time, time, self.watermark, *self.seen(key)))
        self.watermark = new


keyed_ops = st.one_of(
    st.tuples(st.just("register"), deltas),
    st.tuples(st.just("delete"), deltas),
    st.tuples(st.just("value"), small),
    st.tuples(st.just("add"), small),
    st.tuples(st.just("put"), st.integers(0, 3), small),
    st.tuples(st.just("clear"), st.sampled_from(["value", "items", "table"])),
)
names = st.sampled_from("xyz")
rule_ops = st.one_of(
    st.tuples(st.just("put"), names, small),
    st.tuples(st.just("bump"), names),
    st.tuples(st.just("remove"), names),
    st.just(("clear",)),
)
paces = st.sampled_from(list(product(range(7), [0] * 10 + list(range(16)), [False, False, False, True])))
applied = st.lists(st.tuples(st.sampled_from(["value", "items", "table"]), st.integers(0, 3)), max_size=2).map(tuple)


@st.composite
def ruled_inputs(draw, size=50):
    """Events and rules of one split, with disorder."""
    now, found = draw(st.integers(-20, 20)), []
    for _ in range(draw(st.integers(1, size))):
        step, behind, is_rule = draw(paces)
        now += step
        ts = now - behind
        if is_rule:
            found.append(Rule(ts, draw(rule_ops), draw(applied)))
        else:
            found.append(Event(draw(st.sampled_from("abc")), ts, tuple(draw(st.lists(keyed_ops, max_size=3)))))
    return found


def ruled(env, source, bound=3):
    stream = env.from_source(source, strategy(bound), "in").uid("in")
    events, rules = stream.filter(lambda e: isinstance(e, Event)), stream.filter(lambda e: isinstance(e, Rule))
    return events.key_by(lambda e: e.key, str).connect(rules.broadcast(RULES)).process(Ruled()).uid("ruled")


__all__ = ["inputs"]
