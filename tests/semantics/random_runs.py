"""How random jobs are built and run, and what their runs gave."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import random_functions as rf
from random_functions import LATE, LEFT_LATE, RIGHT_LATE, RULES, SIDE, El, digest, mix
from random_jobs import KEYS, SCATTERED, Job, made_by, sources_of

import forkpoint as fp
from forkpoint.testing import TestSource, run_local


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
            case "all":
                ordered = stream.sort_by_event_time() if args[0] == "sort" else None
                minutes = stream.window_all(fp.TumblingEventTimeWindows.of(args[1]))
                return [(minutes.aggregate(rf.Total(), output_type=self.type) if ordered is None else ordered).uid(uid)]
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
                return fp.EventTimeSessionWindows.with_dynamic_gap(
                    lambda e: 1 + (e.left or e.right if hasattr(e, "left") else e)[3] % most
                )
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
        _, n, ts, x = El._fields if self.job.typed else range(4)
        found = {"cnt": fp.Count(), "tot": fp.Sum(x), "lo": fp.Min(ts), "hi": fp.Max(x), "mean": fp.Avg(n)}
        if self.order < SCATTERED:
            found |= {"fst": fp.First(x), "lst": fp.Last(ts), "by": fp.MinBy(n, x)}
        if bounds and not running:
            found |= {"start": fp.WindowStart(), "stop": fp.WindowEnd()}
        return found

    def element(self, rows):
        return rows.map(lambda row: El(str(row[0]), digest(tuple(row)) % 4, 0, digest(tuple(row))), self.type)


def sources(job, *scripts):
    """One source for each, or one of as many splits."""
    kind = {"type": El, "columnar": job.columnar, "batch_rows": 4 if job.columnar else None} if job.typed else {}
    if job.splits:
        return [TestSource(*scripts, **kind)]
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
