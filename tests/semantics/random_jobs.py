"""Random jobs over all operators: a strategy for programs.

A program is a list of steps, each of which makes streams out of earlier ones. What may be asked of a stream's order is
tracked: where an operator emits several elements at one place, those that go on to different keys have no order among them
when they meet again. Behind that only operators are used whose results don't depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from hypothesis import strategies as st
from random_functions import El

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
    it has which side. ``by``: within what outputs keep order. ``at_end``: whether timestamps may be the end of time,
    as those of what windows without an end give.
    """

    order: int
    sides: frozenset[tuple[int, int]] = frozenset()
    by: str | None = None
    at_end: bool = False

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
    splits: bool  # one source with as many splits instead
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
    st.none(),
    st.none(),
    st.tuples(st.just("count"), st.integers(1, 3)),
    st.tuples(st.just("purging-count"), st.integers(1, 3)),
    st.tuples(st.just("continuous"), st.integers(1, 9)),
    st.just(("purging-time",)),
)
evictors = st.one_of(
    st.none(),
    st.none(),
    st.none(),
    st.tuples(st.just("count"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("time"), st.integers(0, 9), st.booleans()),
)
lateness = st.sampled_from([0, 0, 4, 15])
ordered_ends = st.sampled_from(["reduce", "reduce-process", "process", "sum", "min_by", "max", "agg"])
any_ends = st.sampled_from(["aggregate", "aggregate-process", "process", "count", "agg"])

STATELESS = {
    "map": seeds,
    "filter": seeds,
    "flat_map": seeds,
    "gate": seeds,
    "async": st.none(),
    "rebalance": st.none(),
}
KEYED = {
    "machine": seeds,
    "rolling": st.sampled_from(["sum", "min", "max", "min_by", "max_by", "reduce"]),
    "with_state": st.booleans(),
    "agg": st.none(),
    "batched": st.none(),
}


@st.composite
def windows(draw, stream):
    in_order = stream.order < SCATTERED
    kinds = [time_windows]
    if in_order:  # whether sessions that merely touch become one depends on what comes first
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
        kinds += ["iterate", *["windows"] * 6, "buckets", "buckets", "sort", "sort", "all"]
    if stream.order < SCATTERED:
        kinds += [*KEYED, *KEYED, *["machine"] * 4] if typed else ["machine", *(k for k in KEYED if k != "batched")] * 2
    others = [i for i, s in enumerate(streams) if s.apart(stream) and TIMELESS not in (s.order, stream.order)]
    if others and draw(st.integers(0, 2)):
        kinds = ["union", "interval", "interval", "window_join", "window_join"]
        order = max(stream.order, max(streams[i].order for i in others))
        if order < SCATTERED:
            kinds += ["connect", "connect", "broadcast", "broadcast", "temporal", "temporal"]
    else:
        others = []
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "union":
            return Step(kind, (at, draw(st.sampled_from(others or range(len(streams))))), ())
        case "all":
            args = (draw(st.sampled_from(["sort", "count"])), draw(spans))
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
    job = Job(typed, columnar, draw(st.integers(0, 8)), sources, sources > 1 and draw(st.booleans()), ())
    streams = sources_of(job)
    for _ in range(draw(st.integers(2, most))):
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
        found.append(
            El(
                draw(st.sampled_from(["a", "b", "c", "", "é"])),
                draw(st.integers(0, 3)),
                ts,
                draw(st.integers(0, 10**6)),
            )
        )
    return found


def sources_of(job):
    if job.sources == 1:
        return [Stream(IN_ORDER)]
    if job.splits:
        return [Stream(SCATTERED)]
    return [Stream(SCATTERED, frozenset({(-1, i)})) for i in range(job.sources)]


def made_by(step, streams, number):
    """What may be asked of the streams that a step makes."""
    first = streams[step.inputs[0]]
    order = max(streams[i].order for i in step.inputs)
    sides = frozenset.intersection(*(streams[i].sides for i in step.inputs))
    # Behind a stage with elements that share a place, they have no order.
    keyed = TOGETHER if order == IN_ORDER else max(order, SCATTERED)
    by = None if order >= SCATTERED else "key"
    at_end = any(streams[i].at_end for i in step.inputs)
    out = Stream(order, sides, None, at_end)
    result = Stream(keyed, sides, by, at_end)
    endless = step.kind in ("windows", "window_join") and step.args[1][0] in ("count", "global")
    fired = replace(result, at_end=at_end or endless)
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
            return [replace(fired, by=by if named else None), late_ones]
        case "sort":
            return [replace(result, by=f"={step.args[0]}" if by else None), replace(result, by=None)]
        case "interval":
            return [replace(result, by=None)] * 3
        case "window_join":
            return [replace(fired, by=None)]
        case "temporal" | "all":
            return [replace(result, by=None)]
    return [result]
