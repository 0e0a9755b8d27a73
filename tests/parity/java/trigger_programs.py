"""Triggers and evictors, windows of counts. Twins of ``src/Triggers.java``."""

from __future__ import annotations

from java_inputs import Event
from java_programs import by_key, fields, mixed, program, register, seqs, with_late
from window_programs import SESSIONS, SLIDING, TUMBLING, Elements, Mixed, Sorted, Summary, lenient

import forkpoint as fp


class Anything(fp.ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().max_timestamp(), seqs(elements)


class Custom(fp.Trigger):
    early = fp.ValueStateDescriptor("early", int)

    def on_element(self, element, timestamp, window, ctx):
        if window.max_timestamp() <= ctx.get_current_watermark():
            return fp.TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        at = ctx.get_partitioned_state(self.early)
        if element.value >= 7:
            if at.value() is not None:
                ctx.delete_event_time_timer(at.value())
            then = min(timestamp + 10, window.max_timestamp())
            ctx.register_event_time_timer(then)
            at.update(then)
            return fp.TriggerResult.FIRE
        return fp.TriggerResult.PURGE if element.value == 0 else fp.TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        at = ctx.get_partitioned_state(self.early)
        if time == window.max_timestamp():
            return fp.TriggerResult.FIRE
        if at.value() == time:
            at.clear()
            return fp.TriggerResult.FIRE_AND_PURGE
        return fp.TriggerResult.CONTINUE

    def on_processing_time(self, time, window, ctx):
        return fp.TriggerResult.CONTINUE

    def clear(self, window, ctx):
        at = ctx.get_partitioned_state(self.early)
        if at.value() is not None:
            ctx.delete_event_time_timer(at.value())
            at.clear()
        ctx.delete_event_time_timer(window.max_timestamp())


class Low(fp.Evictor):
    """Takes out all elements of low value, which may be all there are."""

    def evict_before(self, elements, size, window, ctx):
        return [e for e in elements if e.value.value >= 6]

    def evict_after(self, elements, size, window, ctx):
        return [e for e in elements if e.timestamp <= ctx.get_current_watermark() - 20]


def apart(a, b):
    return abs(a.value - b.value)


def everything(events, trigger=None):
    windows = by_key(events).window(fp.GlobalWindows.create())
    return windows if trigger is None else windows.trigger(trigger)


@program(bound=10)
def continuous_trigger(events):
    trigger = fp.ContinuousEventTimeTrigger.of(15)
    return with_late(lenient(events, TUMBLING.of(100), 30).trigger(trigger).process(Elements()))


@program(bound=10)
def continuous_trigger_sessions(events):
    trigger = fp.ContinuousEventTimeTrigger.of(15)
    return with_late(lenient(events, SESSIONS.with_gap(20), 30).trigger(trigger).process(Sorted()))


@program(bound=10)
def count_trigger_sessions(events):
    return with_late(lenient(events, SESSIONS.with_gap(12), 30).trigger(fp.CountTrigger.of(3)).process(Sorted()))


@program(bound=10)
def count_trigger_sliding(events):
    return with_late(lenient(events, SLIDING.of(60, 20), 30).trigger(fp.CountTrigger.of(2)).process(Elements()))


@program(bound=10)
def purging_event_time(events):
    trigger = fp.PurgingTrigger.of(fp.EventTimeTrigger.create())
    return with_late(lenient(events, TUMBLING.of(40), 60).trigger(trigger).process(Elements()))


@program(bound=10)
def purging_event_time_sessions(events):
    trigger = fp.PurgingTrigger.of(fp.EventTimeTrigger.create())
    return with_late(lenient(events, SESSIONS.with_gap(15), 60).trigger(trigger).process(Sorted()))


@program(bound=10)
def purging_count(events):
    return {"main": everything(events, fp.PurgingTrigger.of(fp.CountTrigger.of(4))).process(Anything())}


@program(bound=10)
def delta_trigger(events):
    return {"main": everything(events, fp.DeltaTrigger.of(4, apart, Event)).process(Anything())}


@program(bound=10)
def purging_delta_tumbling(events):
    trigger = fp.PurgingTrigger.of(fp.DeltaTrigger.of(3, apart, Event))
    return {"main": lenient(events, TUMBLING.of(100), 30).trigger(trigger).process(Elements())}


@program(bound=10)
def never_trigger(events):
    return {"main": everything(events).process(Anything())}


@program(bound=10)
def custom_trigger(events):
    return with_late(lenient(events, TUMBLING.of(60), 40).trigger(Custom()).process(Elements()))


@program(bound=10)
def count_tumbling(events):
    trigger = fp.PurgingTrigger.of(fp.CountTrigger.of(4))  # what Flink's countWindow(4) is
    return {"main": everything(events, trigger).process(Anything())}


@program(bound=10)
def count_sliding(events):
    windows = everything(events, fp.CountTrigger.of(2)).evictor(fp.CountEvictor.of(5))  # countWindow(5, 2)
    return {"main": windows.process(Anything())}


@program(bound=10)
def count_sliding_reduce(events):
    windows = everything(events, fp.CountTrigger.of(2)).evictor(fp.CountEvictor.of(3))
    return {"main": fields(windows.reduce(mixed))}


@program(bound=10)
def custom_evictor(events):
    return {"main": lenient(events, TUMBLING.of(30), 60).evictor(Low()).process(Elements())}


@program(bound=10)
def custom_evictor_aggregate(events):
    return {"main": lenient(events, TUMBLING.of(30), 60).evictor(Low()).aggregate(Mixed(), Summary())}


def evictors(when, after):
    def evictor_count(events):
        return with_late(lenient(events, TUMBLING.of(50), 60).evictor(fp.CountEvictor.of(2, after)).process(Elements()))

    def evictor_time(events):
        windows = everything(events, fp.CountTrigger.of(3)).evictor(fp.TimeEvictor.of(25, after))
        return {"main": windows.process(Anything())}

    def evictor_delta(events):
        windows = lenient(events, SLIDING.of(60, 30), 30).trigger(fp.CountTrigger.of(2))
        return {"main": windows.evictor(fp.DeltaEvictor.of(4, apart, after)).process(Elements())}

    def evictor_sessions(events):
        windows = lenient(events, SESSIONS.with_gap(15), 60).evictor(fp.TimeEvictor.of(12, after))
        return {"main": windows.process(Sorted())}

    def evictor_reduce(events):
        windows = lenient(events, TUMBLING.of(50), 60).evictor(fp.CountEvictor.of(3, after))
        return {"main": windows.reduce(mixed, Summary())}

    def evictor_aggregate(events):
        windows = lenient(events, TUMBLING.of(50), 60).evictor(fp.CountEvictor.of(3, after))
        return {"main": windows.aggregate(Mixed(), Summary())}

    for build in (evictor_count, evictor_time, evictor_delta, evictor_sessions, evictor_reduce, evictor_aggregate):
        register(f"{build.__name__}_{when}", build, bound=10)


evictors("before", after=False)
evictors("after", after=True)
