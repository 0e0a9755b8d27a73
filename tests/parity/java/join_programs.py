"""Joins of the events of kind left with those of kind right. Twins of ``src/Joins.java``."""

from __future__ import annotations

from java_inputs import Event
from java_programs import by_key, program, seqs
from window_programs import SESSIONS, SLIDING, TUMBLING

import forkpoint as fp

LEFT_LATE, RIGHT_LATE = fp.OutputTag("left-late", Event), fp.OutputTag("right-late", Event)


def of(events, kind):
    return events.filter(lambda e: e.kind == kind)


def keyed(events, kind):
    return by_key(of(events, kind))


class Pairs(fp.ProcessJoinFunction):
    """The pair as part of the key: Flink gives an element's matches in the order of hash codes."""

    def process_element(self, left, right, ctx):
        yield f"{left.key}{left.seq}-{right.seq}", ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.timestamp()


class Latter(fp.ProcessJoinFunction):
    """Which element the pair came with: that has an order."""

    def process_element(self, left, right, ctx):
        yield left.key, max(left.seq, right.seq)


def interval(events, lower, upper):
    return keyed(events, "left").interval_join(keyed(events, "right")).between(lower, upper)


def with_both_late(joined):
    joined = joined.side_output_left_late_data(LEFT_LATE).side_output_right_late_data(RIGHT_LATE)
    pairs = joined.process(Pairs())
    return {
        "main": pairs,
        "left": pairs.get_side_output(LEFT_LATE).map(lambda e: (e.key, e.seq)),
        "right": pairs.get_side_output(RIGHT_LATE).map(lambda e: (e.key, e.seq)),
    }


def window_join(events, windows):
    joined = of(events, "left").join(of(events, "right"))
    return joined.where(lambda e: e.key, str).equal_to(lambda e: e.key, str).window(windows)


def co_group(events, windows):
    grouped = of(events, "left").co_group(of(events, "right"))
    return grouped.where(lambda e: e.key, str).equal_to(lambda e: e.key, str).window(windows)


def pair(left, right):
    return left.key, left.seq, right.seq


class Both(fp.CoGroupFunction):
    def __init__(self, ordered=list):
        self.ordered = ordered

    def co_group(self, first, second):
        yield [*first, *second][0].key, self.ordered(seqs(first)), self.ordered(seqs(second))


@program(bound=20)
def interval_join(events):
    return with_both_late(interval(events, -20, 12))


@program(bound=20)
def interval_join_exclusive(events):
    return with_both_late(interval(events, -20, 12).lower_bound_exclusive().upper_bound_exclusive())


@program(bound=10)
def interval_join_ahead(events):
    return with_both_late(interval(events, 5, 40).upper_bound_exclusive())


@program(bound=10)
def interval_join_behind(events):
    return with_both_late(interval(events, -40, -5))


@program(bound=20)
def interval_join_order(events):
    return {"untimed": interval(events, -30, 30).process(Latter())}


@program(bound=20)
def window_join_tumbling(events):
    return {"main": window_join(events, TUMBLING.of(40)).apply(pair)}


@program(bound=10)
def window_join_lateness(events):
    return {"main": window_join(events, TUMBLING.of(40)).allowed_lateness(30).apply(pair)}


@program(bound=20)
def window_join_sliding(events):
    return {"main": window_join(events, SLIDING.of(40, 15)).apply(pair)}


@program(bound=20)
def window_join_session(events):
    windows = window_join(events, SESSIONS.with_gap(10))
    return {"main": windows.apply(lambda left, right: (f"{left.key}{left.seq}-{right.seq}",))}


class Greater(fp.FlatJoinFunction):
    def join(self, first, second):
        if first.value > second.value:
            yield first.key, first.seq, second.seq


@program(bound=20)
def window_join_flat(events):
    return {"main": window_join(events, TUMBLING.of(40)).apply(Greater())}


@program(bound=20)
def co_group_tumbling(events):
    return {"main": co_group(events, TUMBLING.of(30)).apply(Both())}


@program(bound=10)
def co_group_sliding_lateness(events):
    return {"main": co_group(events, SLIDING.of(40, 20)).allowed_lateness(40).apply(Both())}


@program(bound=20)
def co_group_session(events):
    return {"main": co_group(events, SESSIONS.with_gap(10)).allowed_lateness(20).apply(Both(sorted))}


@program(bound=20)
def co_group_trigger(events):
    return {"main": co_group(events, TUMBLING.of(60)).trigger(fp.CountTrigger.of(2)).apply(Both())}


@program(bound=20)
def co_group_evictor(events):
    windows = co_group(events, TUMBLING.of(60)).evictor(fp.CountEvictor.of(3)).allowed_lateness(60)
    return {"main": windows.apply(Both())}
