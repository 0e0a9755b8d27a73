"""The model's setups as jobs."""

from __future__ import annotations

from hypothesis import strategies as st
from window_model import Event, Setup

import forkpoint as fp
from forkpoint.testing import TestSource, run_local

LATE = fp.OutputTag("late", Event)


class Trace(fp.ProcessWindowFunction):
    """What the model writes down."""

    def process(self, key, context, elements):
        yield key, tuple(context.window()), "".join(e.trace for e in elements), context.current_watermark()


class Joined(fp.AggregateFunction):
    def create_accumulator(self) -> list[str]:
        return []

    def add(self, value, accumulator):
        accumulator.append(value.trace)
        return accumulator

    def get_result(self, accumulator):
        return Event("", 0, "".join(accumulator), 0)

    def merge(self, a, b):
        return a + b


def join(a, b):
    return a._replace(trace=a.trace + b.trace)


def assigner_of(assigner):
    match assigner:
        case ("tumbling", size, offset):
            return fp.TumblingEventTimeWindows.of(size, offset)
        case ("sliding", size, slide, offset):
            return fp.SlidingEventTimeWindows.of(size, slide, offset)
        case ("session", gap):
            return fp.EventTimeSessionWindows.with_gap(gap)
        case ("dynamic",):
            return fp.EventTimeSessionWindows.with_dynamic_gap(lambda e: e.gap)
        case ("global",):
            return fp.GlobalWindows.create()


def trigger_of(trigger):
    match trigger:
        case ("event",):
            return fp.EventTimeTrigger.create()
        case ("count", size):
            return fp.CountTrigger.of(size)
        case ("purging", inner):
            return fp.PurgingTrigger.of(trigger_of(inner))
        case ("continuous", interval):
            return fp.ContinuousEventTimeTrigger.of(interval)
        case ("delta", threshold):
            return fp.DeltaTrigger.of(threshold, lambda a, b: abs(a.ts - b.ts), Event)
        case ("never",):
            return fp.NeverTrigger()


def evictor_of(evictor):
    match evictor:
        case ("count", n, after):
            return fp.CountEvictor.of(n, after)
        case ("time", span, after):
            return fp.TimeEvictor.of(span, after)
        case ("delta", threshold, after):
            return fp.DeltaEvictor.of(threshold, lambda a, b: abs(a.ts - b.ts), after)


def windowed(stream, setup):
    """The windows of a stream of Events."""
    keyed = stream.key_by(lambda e: e.key)
    if setup.assigner[0] == "count":
        _, size, slide = setup.assigner
        windows = keyed.count_window(size, 0 if slide == size else slide)
    else:
        windows = keyed.window(assigner_of(setup.assigner))
    if setup.trigger is not None:
        windows = windows.trigger(trigger_of(setup.trigger))
    if setup.evictor is not None:
        windows = windows.evictor(evictor_of(setup.evictor))
    windows = windows.allowed_lateness(setup.lateness).side_output_late_data(LATE)
    match setup.combine:
        case "reduce":
            return windows.reduce(join, Trace())
        case "aggregate":
            return windows.aggregate(Joined(), Trace())
    return windows.process(Trace())


def build(setup):
    def job(env, source):
        strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(setup.bound).with_timestamp_assigner(lambda e, _: e.ts)
        results = windowed(env.from_source(source, strategy, "in").uid("in"), setup).uid("windows")
        return {"results": results, "late": results.get_side_output(LATE)}

    return job


def run(setup, events, **how):
    return run_local(build(setup), TestSource(events, type=Event), **how)


def by_window(rows):
    """Windows of one key that fire at one moment have no order among them; the results of each window do."""
    found = {}
    for row in rows:
        found.setdefault(row[:2], []).append(row)
    return found


def results(run):
    return by_window((*r.value, r.timestamp) for r in run.records["results"])


sizes = st.integers(1, 12)
triggers = st.one_of(
    st.just(("event",)),
    st.tuples(st.just("count"), st.integers(1, 4)),
    st.tuples(st.just("continuous"), st.integers(1, 6)),
)
mergeable = st.one_of(st.none(), triggers, st.tuples(st.just("purging"), triggers))
any_trigger = st.one_of(mergeable, st.tuples(st.just("delta"), st.integers(0, 6)))
evictors = st.one_of(
    st.none(),
    st.none(),
    st.tuples(st.just("count"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("time"), st.integers(1, 8), st.booleans()),
    st.tuples(st.just("delta"), st.integers(1, 8), st.booleans()),
)


@st.composite
def setups(draw, kinds=("tumbling", "sliding", "session", "dynamic", "global", "count")):
    kind = draw(st.sampled_from(kinds))
    size = draw(sizes)
    match kind:
        case "tumbling":
            assigner = (kind, size, draw(st.integers(-size + 1, size - 1)))
        case "sliding":
            slide = draw(sizes)
            assigner = (kind, size, slide, draw(st.integers(-slide + 1, slide - 1)))
        case "session":
            assigner = (kind, size)
        case "count":
            size, slide = draw(st.integers(1, 5)), draw(st.integers(1, 5))
            assigner = (kind, size, slide)
        case _:
            assigner = (kind,)
    trigger = draw(mergeable if kind in ("session", "dynamic") else any_trigger)
    if kind in ("global", "count") and "continuous" in str(trigger):
        trigger = ("purging", ("count", 2))  # with no end to fire at, it would go on until the end of time
    evictor = draw(evictors) if kind != "count" else None
    lateness = draw(st.sampled_from([0, 0, 1, 4, 20]))
    combine = draw(st.sampled_from(["process", "reduce", "aggregate"]))
    return Setup(assigner, trigger, evictor, lateness, combine, draw(st.integers(0, 8)))


_BEHIND = [0] * 12 + list(range(1, 19))
_CODES = st.integers(0, 8 * len(_BEHIND) * 9 * 2 - 1)


@st.composite
def inputs(draw, size=50):
    """Events of two keys with disorder, some of them late. Each is drawn as one number, which is faster than its parts."""
    now, events = draw(st.integers(-20, 20)), []
    count = draw(st.integers(1, size))
    for i, code in enumerate(draw(st.lists(_CODES, min_size=count, max_size=count))):
        code, step = divmod(code, 8)
        code, behind = divmod(code, len(_BEHIND))
        key, gap = divmod(code, 9)
        now += step
        events.append(Event("ab"[key], now - _BEHIND[behind], chr(ord("A") + i), gap + 1))
    return events
