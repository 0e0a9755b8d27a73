"""Windows of time: lateness, sessions, functions and their state. Twins of ``src/Windows.java``."""

from __future__ import annotations

from java_inputs import Event
from java_programs import LATE, by_key, fields, mix, mixed, program, seqs, with_late

import forkpoint as fp
from forkpoint.functions.windows.assigners import merge_time_windows

TUMBLING, SLIDING = fp.TumblingEventTimeWindows, fp.SlidingEventTimeWindows
SESSIONS = fp.EventTimeSessionWindows


class Elements(fp.ProcessWindowFunction):
    def process(self, key, context, elements):
        yield (key, *context.window(), seqs(elements))


class Sorted(fp.ProcessWindowFunction):
    """Flink merges sessions in the order of their hash codes, so there is none to compare."""

    def process(self, key, context, elements):
        yield (key, *context.window(), sorted(seqs(elements)))


class ByWindow(fp.ProcessWindowFunction):
    """The window as part of the key: what fires at one moment has no order in Flink."""

    def process(self, key, context, elements):
        yield f"{key}{context.window().start}", context.window().end, seqs(elements)


class Watermarked(fp.ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, seqs(elements), context.current_watermark()


FIRINGS = fp.ValueStateDescriptor("window-firings", int)
SIZES = fp.ListStateDescriptor("window-sizes", int)


class Counting(fp.ProcessWindowFunction):
    cleared = fp.ValueStateDescriptor("cleared", int)
    windows = fp.ListStateDescriptor("all", int)

    def process(self, key, context, elements):
        count = context.window_state().get_state(FIRINGS)
        count.update((count.value() or 0) + 1)
        sizes = context.window_state().get_list_state(SIZES)
        sizes.add(len(list(elements)))
        self.windows.add(context.window().start)
        seen, windows = list(sizes.get()), list(self.windows.get())
        yield key, context.window().start, count.value(), seen, windows, self.cleared.value()

    def clear(self, context):
        count = context.window_state().get_state(FIRINGS)
        self.cleared.update((self.cleared.value() or 0) + (count.value() or 100))
        count.clear()
        context.window_state().get_list_state(SIZES).clear()


class Mixed(fp.AggregateFunction):
    def create_accumulator(self) -> int:
        return 7

    def add(self, value, accumulator):
        return mix(accumulator, value.seq)

    def get_result(self, accumulator):
        return accumulator * 2

    def merge(self, a, b):
        return mix(a, b)


class Summed(fp.AggregateFunction):
    """Commutative, for what has no order."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value, accumulator):
        return accumulator + 1_000 + value.seq

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


def summed(a, b):
    return Event(a.seq + b.seq, b.key, max(a.ts, b.ts), a.value + b.value, a.kind)


class Summary(fp.ProcessWindowFunction):
    def process(self, key, context, elements):
        yield (key, *context.window(), *((e.seq, e.value) if isinstance(e, Event) else e for e in elements))


class ByValue(fp.WindowAssigner):
    def assign_windows(self, element, timestamp, context):
        start = timestamp // 40 * 40
        return [fp.TimeWindow(start, start + 40 * (i + 1)) for i in range(element.value % 3)]

    def get_default_trigger(self, env=None):
        return fp.EventTimeTrigger.create()

    def is_event_time(self):
        return True


class Around(fp.MergingWindowAssigner):
    def assign_windows(self, element, timestamp, context):
        return [fp.TimeWindow(timestamp - element.value, timestamp + element.value + 1)]

    def merge_windows(self, windows, callback):
        merge_time_windows(windows, callback)

    def get_default_trigger(self, env=None):
        return fp.EventTimeTrigger.create()

    def is_event_time(self):
        return True


def lenient(events, assigner, lateness=0):
    windows = by_key(events).window(assigner)
    return windows.allowed_lateness(lateness).side_output_late_data(LATE)


@program(bound=20)
def tumbling_lateness(events):
    return with_late(lenient(events, TUMBLING.of(50), 30).process(Elements()))


@program(bound=5)
def tumbling_no_lateness(events):
    return with_late(lenient(events, TUMBLING.of(30, 7)).process(Elements()))


@program(bound=15)
def sliding_lateness(events):
    return with_late(lenient(events, SLIDING.of(60, 25), 20).process(Elements()))


@program(bound=10)
def sliding_gaps(events):
    return with_late(lenient(events, SLIDING.of(20, 50, -10), 10).process(Elements()))


@program(bound=10)
def session_lateness(events):
    return with_late(lenient(events, SESSIONS.with_gap(12), 40).process(Sorted()))


@program(bound=10)
def session_reduce_lateness(events):
    return with_late(lenient(events, SESSIONS.with_gap(15), 100).reduce(summed, Summary()))


@program(bound=10)
def session_dynamic_gap(events):
    return with_late(lenient(events, SESSIONS.with_dynamic_gap(lambda e: 3 + 4 * e.value), 25).process(Sorted()))


@program(bound=10)
def custom_assigner(events):
    return with_late(lenient(events, ByValue(), 15).process(ByWindow()))


@program(bound=10)
def custom_merging_assigner(events):
    return with_late(lenient(events, Around(), 30).process(Sorted()))


@program(bound=10)
def window_state(events):
    return {"main": by_key(events).window(TUMBLING.of(40)).allowed_lateness(35).process(Counting())}


@program(bound=10)
def window_watermark(events):
    return {"main": by_key(events).window(TUMBLING.of(40)).allowed_lateness(60).process(Watermarked())}


@program(bound=10)
def aggregate_process(events):
    return with_late(lenient(events, TUMBLING.of(50), 30).aggregate(Mixed(), Summary()))


@program(bound=10)
def aggregate_session(events):
    return with_late(lenient(events, SESSIONS.with_gap(10), 50).aggregate(Summed(), Summary()))


@program(bound=10)
def reduce_process(events):
    return {"main": by_key(events).window(SLIDING.of(60, 20)).allowed_lateness(30).reduce(mixed, Summary())}


@program(bound=10)
def reduce_alone(events):
    return {"main": fields(by_key(events).window(TUMBLING.of(50)).allowed_lateness(30).reduce(mixed))}


class Each(fp.WindowFunction):
    def apply(self, key, window, inputs):
        for e in inputs:
            yield key, window.start, e.seq


@program(bound=10)
def apply_window(events):
    return {"main": by_key(events).window(TUMBLING.of(50)).apply(Each())}


@program(bound=10)
def window_fields(events):
    def windows():
        return by_key(events).window(TUMBLING.of(50)).allowed_lateness(30)

    return {
        "sum": fields(windows().sum("value")),
        "min": fields(windows().min("value")),
        "max": fields(windows().max("value")),
        "min_by": fields(windows().min_by("value")),
        "max_by": fields(windows().max_by("value")),
    }


class All(fp.ProcessAllWindowFunction):
    def process(self, context, elements):
        yield "all", context.window().start, seqs(elements)


@program(bound=10)
def window_all(events):
    return {"main": events.window_all(TUMBLING.of(35)).allowed_lateness(20).process(All())}


@program(bound=10)
def windows_behind_windows(events):
    first = by_key(events).window(TUMBLING.of(20)).allowed_lateness(25).reduce(mixed)
    return {"main": by_key(first).window(TUMBLING.of(60)).allowed_lateness(30).process(Elements())}


@program(bound=10)
def two_stages_by_another_key(events):
    first = by_key(events).window(TUMBLING.of(20)).allowed_lateness(25).reduce(mixed)
    second = first.key_by(lambda e: e.kind, str).window(SLIDING.of(80, 40)).side_output_late_data(LATE)
    return with_late(second.aggregate(Summed(), Summary()))
