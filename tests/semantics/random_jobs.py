"""Random jobs over all operators: a strategy for programs, how they are built, and what their runs gave.

A program is a list of steps, each of which makes streams out of earlier ones. What may be asked of a stream's order is
tracked: where an operator emits several elements at one place, those that go on to different keys have no order among them
when they meet again. Behind that only operators are used whose results don't depend on it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import random_functions as rf
from hypothesis import strategies as st
from random_functions import LATE, LEFT_LATE, RIGHT_LATE, RULES, SIDE, El, digest, mix

import forkpoint as fp
from forkpoint.testing import TestSource, run_local

IN_ORDER, TOGETHER, SCATTERED, TIMELESS = range(4)

KEYS = {
    "field": (lambda e: e.key, lambda e: e[0], str),
    "number": (lambda e: e.n, lambda e: e[1], int),
    "both": (lambda e: (e.key, e.n), lambda e: (e[0], e[1]), tuple[str, int]),
    "computed": (lambda e: e[3] % 3, lambda e: e[3] % 3, int),
    "text": (lambda e: f"key-000{e[3] % 5}", lambda e: f"key-000{e[3] % 5}", str),
}


@dataclass(frozen=True)
class Stream:
    """What may be asked of a stream. ``order``: IN_ORDER: elements have places of their own; TOGETHER: those that share one
    come from one subtask, in order; SCATTERED: they have none; TIMELESS: nor a place in time. ``sides``: of which splits
    it has which side. ``late``: whether elements may be behind the watermark. ``by``: within what outputs keep order.
    """

    order: int
    sides: frozenset[tuple[int, int]] = frozenset()
    late: bool = True
    by: str | None = None

    def apart(self, other: Stream) -> bool:
        return any((n, 1 - side) in other.sides for n, side in self.sides)


class Step(NamedTuple):
    kind: str
    inputs: tuple[int, ...]
    args: tuple


class Job(NamedTuple):
    typed: bool
    columnar: bool
    bound: int
    sources: int
    steps: tuple[Step, ...]


# -- what there is to choose from

seeds = st.integers(0, 999)
keys = st.sampled_from(sorted(KEYS))
spans = st.integers(1, 14)
offsets = st.integers(-4, 4)
time_windows = st.one_of(
    st.tuples(st.just("tumbling"), spans, offsets),
    st.tuples(st.just("sliding"), spans, spans),
)
sessions = st.one_of(st.tuples(st.just("session"), spans), st.tuples(st.just("dynamic"), st.integers(1, 5)))
counted = st.one_of(st.tuples(st.just("count"), st.integers(1, 4), st.integers(0, 4)), st.just(("global",)))
triggers = st.one_of(
    st.none(), st.none(), st.tuples(st.just("count"), st.integers(1, 3)), st.tuples(st.just("purging-count"), st.integers(1, 3)),
    st.tuples(st.just("continuous"), st.integers(1, 9)), st.just(("purging-time",)),
)  # fmt: skip
evictors = st.one_of(
    st.none(), st.none(), st.none(), st.tuples(st.just("count"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("time"), st.integers(0, 9), st.booleans()),
)  # fmt: skip
lateness = st.sampled_from([0, 0, 4, 15])
ordered_ends = st.sampled_from(["reduce", "reduce-process", "process", "sum", "min_by", "max", "agg"])
any_ends = st.sampled_from(["aggregate", "aggregate-process", "process", "count", "agg"])

STATELESS = {"map": seeds, "filter": seeds, "flat_map": seeds, "gate": seeds, "async": st.none(), "rebalance": st.none()}
KEYED = {
    "machine": seeds, "rolling": st.sampled_from(["sum", "min", "max", "min_by", "max_by", "reduce"]), "with_state": st.booleans(),
    "agg": st.none(), "batched": st.none(),
}  # fmt: skip


@st.composite
def windows(draw, stream):
    in_order = stream.order < SCATTERED
    kinds = [time_windows]
    if in_order or not stream.late:
        kinds.append(sessions)
    if not in_order:
        return draw(st.one_of(kinds)), None, None, 0, draw(any_ends)
    assigner, trigger = draw(st.one_of(*kinds, counted)), draw(triggers)
    if assigner[0] == "global":
        # One of event time would never end: the last watermark is behind no end of such a window.
        trigger = draw(st.tuples(st.sampled_from(["count", "purging-count"]), st.integers(1, 3)))
    if assigner[0] == "count":
        trigger = None
    return assigner, trigger, draw(evictors), draw(lateness), draw(st.one_of(ordered_ends, any_ends))


@st.composite
def steps(draw, streams, typed):
    """One step on streams that there are, later ones more often."""
    at = len(streams) - 1 - draw(st.one_of(st.just(0), st.integers(0, len(streams) - 1)))
    stream = streams[at]
    kinds = [*STATELESS, *["split"] * 4, "union"]
    if stream.order == TIMELESS:
        kinds += ["tally", "tally"]
    else:
        kinds += ["iterate", *["windows"] * 6, "buckets", "buckets", "sort", "sort"]
    if stream.order < SCATTERED:
        kinds += [*KEYED, *KEYED, *["machine"] * 4] if typed else ["machine", *(k for k in KEYED if k != "batched")] * 2
    others = [i for i, s in enumerate(streams) if s.apart(stream)]
    if others:
        kinds = ["union", "interval", "interval", "window_join", "window_join"]
        order = max(stream.order, max(streams[i].order for i in others))
        if order < SCATTERED:
            kinds += ["connect", "connect", "broadcast", "broadcast", "temporal", "temporal"]
        if order == TIMELESS:
            kinds = ["union"]
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "union":
            return Step(kind, (at, draw(st.sampled_from(others or range(len(streams))))), ())
        case "interval":
            low = draw(st.integers(-9, 9))
            args = (draw(keys), low, draw(st.integers(low, low + 12)))
        case "window_join":
            assigner, trigger, evictor, late, _ = draw(windows(replace(stream, order=order)))
            args = (draw(keys), assigner, trigger, evictor, late, draw(st.booleans()))
        case "connect" | "broadcast":
            args = (draw(keys), draw(seeds))
        case "temporal":
            args = (draw(keys), draw(st.booleans()))
        case "split":
            args = (draw(st.integers(2, 4)),)
        case "iterate":
            args = (draw(st.booleans()), draw(keys))
        case "tally":
            args = (draw(keys),)
        case "buckets":
            args = (draw(keys), draw(st.integers(0, 12)))
        case "sort":
            args = (draw(keys),)
        case "windows":
            args = (draw(keys), *draw(windows(stream)))
        case _ if kind in KEYED:
            args = (draw(keys), draw(KEYED[kind]))
        case _:
            args = (draw(STATELESS[kind]),)
    inputs = (at,) if not others else (at, draw(st.sampled_from(others)))
    return Step(kind, inputs, args)


@st.composite
def jobs(draw, most=6, sources=1):
    typed = draw(st.booleans()) or draw(st.booleans())
    columnar = typed and draw(st.booleans())
    job = Job(typed, columnar, draw(st.integers(0, 8)), sources, ())
    streams = sources_of(job)
    for _ in range(draw(st.integers(1, most))):
        step = draw(steps(streams, typed))
        job = job._replace(steps=(*job.steps, step))
        streams = [*streams, *made_by(step, streams, len(job.steps))]
    return job


@st.composite
def inputs(draw, behind, size=30):
    now, found = draw(st.integers(-20, 20)), []
    pace = draw(st.sampled_from([1, 4, 9]))
    for _ in range(draw(st.integers(1, size))):
        now += draw(st.integers(0, pace))
        ts = now - draw(st.one_of(st.just(0), st.integers(0, behind)))
        found.append(El(draw(st.sampled_from(["a", "b", "c", "", "é"])), draw(st.integers(0, 3)), ts, draw(st.integers(0, 10**6))))
    return found


def sources_of(job):
    if job.sources == 1:
        return [Stream(IN_ORDER)]
    return [Stream(SCATTERED, frozenset({(-1, i)}), late=False) for i in range(job.sources)]


def made_by(step, streams, number):
    """What may be asked of the streams that a step makes."""
    first = streams[step.inputs[0]]
    order = max(streams[i].order for i in step.inputs)
    sides = frozenset.intersection(*(streams[i].sides for i in step.inputs))
    late = any(streams[i].late for i in step.inputs)
    # Behind a stage with elements that share a place, they have no order.
    keyed = TOGETHER if order == IN_ORDER else max(order, SCATTERED)
    by = None if order >= SCATTERED else "key"
    out = Stream(order, sides, late)
    result = Stream(keyed, sides, late, by)
    match step.kind:
        case "map" | "filter" | "rebalance":
            return [out]
        case "flat_map" | "async":
            return [replace(out, order=max(order, TOGETHER))]
        case "gate":
            return [out, out]
        case "split":
            return [replace(first, sides=sides | {(number, side)}, by=None) for side in (0, 1)]
        case "union":
            apart = streams[step.inputs[0]].apart(streams[step.inputs[1]])
            return [replace(out, order=order if apart else max(order, SCATTERED))]
        case "iterate":
            return [replace(out, order=TIMELESS)]
        case "machine":
            return [result, result]
        case "rolling":
            kept = step.args[0] in ("field", "number", "both") and step.args[1] not in ("reduce",)
            return [replace(result, order=order if order < TOGETHER else keyed, by=f"={step.args[0]}" if kept and by else None)]
        case "with_state":
            return [replace(result, by=None)]
        case "batched" | "agg" | "tally":
            return [replace(result, order=TIMELESS if order == TIMELESS else keyed, by=None)]
        case "windows":
            selector = f"={step.args[0]}" if by else None
            named = step.args[-1] in ("process", "reduce-process", "aggregate-process")
            late_ones = replace(result, by=selector)
            return [replace(result, by=by if named else None), late_ones]
        case "sort":
            return [replace(result, by=f"={step.args[0]}" if by else None), replace(result, by=None)]
        case "interval":
            return [replace(result, by=None)] * 3
        case "window_join" | "temporal":
            return [replace(result, by=None)]
    return [result]


# -- how they are built


def build(job, *, every=False):
    def program(env, *given):
        strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(job.bound).with_timestamp_assigner(lambda e, _: e[2])
        streams = [env.from_source(s, strategy, f"in-{i}").uid(f"in-{i}") for i, s in enumerate(given)]
        known, outputs, used = sources_of(job), {}, set()
        for number, step in enumerate(job.steps, 1):
            order = max(known[i].order for i in step.inputs)
            made = Builder(job, number, order).step(step, [streams[i] for i in step.inputs])
            facts = made_by(step, known, number)
            assert len(made) == len(facts), step
            used.update(step.inputs)
            streams += made
            known += facts
        for i, (stream, facts) in enumerate(zip(streams, known, strict=True)):
            if i not in used or facts.by is not None or every:
                outputs[f"out-{i}"] = stream
        return outputs

    return program


@dataclass
class Builder:
    job: Job
    number: int
    order: int
    uid: str = field(init=False)
    type: Any = field(init=False)

    def __post_init__(self):
        self.uid, self.type = f"step-{self.number}", El if self.job.typed else None

    def key(self, stream, name):
        picked, by_place, type_ = KEYS[name]
        return stream.key_by(picked) if self.job.typed and name in ("field", "number", "both") else stream.key_by(by_place, type_)

    def step(self, step, streams):
        stream, args, uid, seed = streams[0], step.args, self.uid, step.args[0] if step.args else None
        keyed = self.key(stream, args[0]) if args and args[0] in KEYS else None
        other = self.key(streams[1], args[0]) if keyed is not None and len(streams) > 1 else None
        match step.kind:
            case "map":
                return [stream.map(lambda e: El(e[0], (e[1] + seed) % 4, e[2], mix(e[3], seed)), self.type)]
            case "filter":
                return [stream.filter(lambda e: (e[3] + seed) % 4 > 0)]
            case "flat_map":
                return [stream.flat_map(lambda e: [El(e[0], i, e[2], mix(e[3], i)) for i in range((e[3] + seed) % 4)], self.type)]
            case "gate":
                out = stream.process(rf.Gate(seed), self.type).uid(uid)
                return [out, out.get_side_output(SIDE)]
            case "async":
                return [fp.AsyncDataStream.ordered_wait(stream, rf.looked_up, 60_000, output_type=self.type).uid(uid)]
            case "rebalance":
                return [stream.rebalance().map(lambda e: El(*e), self.type)]
            case "split":
                return [stream.filter(lambda e, side=side: (e[3] % seed == 0) == (side == 0)) for side in (0, 1)]
            case "union":
                return [stream.union(streams[1])]
            case "iterate":
                return [self.loop(stream, *args)]
            case "machine":
                out = keyed.process(rf.Machine(args[1]), self.type).uid(uid)
                return [out, out.get_side_output(SIDE)]
            case "buckets":
                return [keyed.process(rf.Buckets(args[1]), self.type).uid(uid)]
            case "tally":
                return [keyed.process(rf.Tally(), self.type).uid(uid)]
            case "rolling":
                return [(keyed.reduce(rf.reduced) if args[1] == "reduce" else getattr(keyed, args[1])(3)).uid(uid)]
            case "with_state":
                method, fn = (keyed.flat_map_with_state, rf.flat_with_state) if args[1] else (keyed.map_with_state, rf.with_state)
                return [method(fn, int, self.type).uid(uid)]
            case "batched":
                return [keyed.process_batch(rf.Batched(), El).uid(uid)]
            case "agg":
                return [self.element(keyed.agg(**self.aggregates(running=True)).uid(uid))]
            case "sort":
                out = keyed.sort_by_event_time(LATE).uid(uid)
                return [out, out.get_side_output(LATE)]
            case "windows":
                return self.windows(keyed, *args[1:])
            case "interval":
                join = keyed.interval_join(other).between(args[1], args[2])
                join = join.side_output_left_late_data(LEFT_LATE).side_output_right_late_data(RIGHT_LATE)
                out = join.process(rf.near, self.type).uid(uid)
                return [out, out.get_side_output(LEFT_LATE), out.get_side_output(RIGHT_LATE)]
            case "window_join":
                _, selector, type_ = KEYS[args[0]]
                start = stream.join if args[-1] else stream.co_group
                joined = start(streams[1]).where(selector, type_).equal_to(selector, type_).window(self.assigner(args[1]))
                self.settle(joined, *args[2:5], side=False)
                return [joined.apply(rf.pair if args[-1] else rf.grouped(self.order < SCATTERED), self.type).uid(uid)]
            case "temporal":
                temporal = keyed.temporal_join(other)
                return [(temporal.left_outer() if args[1] else temporal).apply(rf.outer, self.type).uid(uid)]
            case "connect":
                return [keyed.connect(other).process(rf.Meeting(args[1]), self.type).uid(uid)]
            case "broadcast":
                return [keyed.connect(streams[1].broadcast(RULES)).process(rf.Ruled(args[1]), self.type).uid(uid)]
        raise AssertionError(step)

    def loop(self, stream, keyed, key):
        loop = stream.iterate().uid(self.uid)
        body = loop.filter(lambda e: e[1] > 0).map(lambda e: El(e[0], e[1] - 1, e[2], mix(e[3], 5)), self.type)
        if keyed:
            body = self.key(body, key).process(rf.Tally(), self.type).uid(f"{self.uid}-body")
        loop.close_with(body)
        return loop.filter(lambda e: e[1] <= 0)

    def assigner(self, given):
        match given:
            case ("tumbling", size, offset):
                return fp.TumblingEventTimeWindows.of(size, offset % size)
            case ("sliding", size, slide):
                return fp.SlidingEventTimeWindows.of(size, slide)
            case ("session", gap):
                return fp.EventTimeSessionWindows.with_gap(gap)
            case ("dynamic", most):
                return fp.EventTimeSessionWindows.with_dynamic_gap(lambda e: 1 + (e.left or e.right if hasattr(e, "left") else e)[3] % most)
            case ("global",):
                return fp.GlobalWindows.create()
            case ("count", size, slide):
                return fp.CountSlidingWindowAssigner.of(size, slide) if slide else fp.CountTumblingWindowAssigner.of(size)
        raise AssertionError(given)

    def settle(self, windowed, trigger, evictor, late, *, side=True):
        match trigger:
            case ("count", n):
                windowed.trigger(fp.CountTrigger.of(n))
            case ("purging-count", n):
                windowed.trigger(fp.PurgingTrigger.of(fp.CountTrigger.of(n)))
            case ("continuous", interval):
                windowed.trigger(fp.ContinuousEventTimeTrigger.of(interval))
            case ("purging-time",):
                windowed.trigger(fp.PurgingTrigger.of(fp.EventTimeTrigger.create()))
        match evictor:
            case ("count", n, after):
                windowed.evictor(fp.CountEvictor.of(n, after))
            case ("time", span, after):
                windowed.evictor(fp.TimeEvictor.of(span, after))
        windowed.allowed_lateness(late)
        if side:
            windowed.side_output_late_data(LATE)

    def windows(self, keyed, assigner, trigger, evictor, late, end):
        windowed = keyed.window(self.assigner(assigner))
        self.settle(windowed, trigger, evictor, late)
        in_order, merging = self.order < SCATTERED, assigner[0] in ("session", "dynamic")
        match end:
            case "reduce":
                out = windowed.reduce(rf.reduced)
            case "reduce-process":
                out = windowed.reduce(rf.reduced, rf.Windowed(), self.type)
            case "aggregate":
                out = windowed.aggregate(rf.Total(), output_type=self.type)
            case "aggregate-process":
                out = windowed.aggregate(rf.Total(), rf.Windowed(), output_type=self.type)
            case "process":
                out = windowed.process(rf.InOrder(in_order=in_order, merging=merging), self.type)
            case "count":
                out = windowed.count()
            case "agg":
                out = windowed.agg(**self.aggregates(bounds=assigner[0] in ("tumbling", "sliding", "session", "dynamic")))
            case field_method:
                out = getattr(windowed, field_method)(3)
        out = out.uid(self.uid)
        found = self.element(out) if end in ("count", "agg") else out
        return [found, out.get_side_output(LATE)]

    def aggregates(self, *, bounds=False, running=False):
        key, n, ts, x = El._fields if self.job.typed else range(4)
        found = {"cnt": fp.Count(), "tot": fp.Sum(x), "lo": fp.Min(ts), "hi": fp.Max(x), "mean": fp.Avg(n)}
        if self.order < SCATTERED:
            found |= {"fst": fp.First(x), "lst": fp.Last(ts), "by": fp.MinBy(n, x)}
        if bounds and not running:
            found |= {"start": fp.WindowStart(), "stop": fp.WindowEnd()}
        return found

    def element(self, rows):
        return rows.map(lambda row: El(str(row[0]), digest(tuple(row)) % 4, 0, digest(tuple(row))), self.type)


# -- what they gave


def sources(job, *scripts):
    kind = {"type": El, "columnar": job.columnar, "batch_rows": 4 if job.columnar else None} if job.typed else {}
    return [TestSource(script, **kind) for script in scripts]


def run(job, *scripts, **how):
    return run_local(build(job), *sources(job, *scripts), **how)


def results(job, *runs):
    """Of each output all elements with their timestamps; in order, by key, where there is one."""
    known = sources_of(job)
    for number, step in enumerate(job.steps, 1):
        known += made_by(step, known, number)
    found = {}
    for name in runs[0].records:
        by = known[int(name.removeprefix("out-"))].by
        records = [(tuple(r.value), r.timestamp) for each in runs for r in each.records[name]]
        if by is None:
            found[name] = Counter(records)
        else:
            select = (lambda e: e[0]) if by == "key" else KEYS[by.removeprefix("=")][1]
            found[name] = {}
            for record in records:
                found[name].setdefault(select(record[0]), []).append(record)
    return found
