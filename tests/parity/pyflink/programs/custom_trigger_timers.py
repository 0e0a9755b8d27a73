"""A trigger with timers of its own within the window, some of them deleted again, in sliding windows."""

from parity_inputs import readings
from pyflink.common import Time
from pyflink.datastream import ProcessWindowFunction, Trigger, TriggerResult
from pyflink.datastream.window import SlidingEventTimeWindows

INPUTS = {"readings": readings(seed=18, count=60)}
TIMESTAMPS = False
ORDERED = False  # timers of two windows of a key may be due at the same time


class AtElements(Trigger):
    """Fires a second behind each element, unless an element of the second half of the window has come by then."""

    def on_element(self, element, timestamp, window, ctx):
        at = timestamp + 1_000
        if at < window.max_timestamp():
            ctx.register_event_time_timer(at)
        if element[2] % 5 == 0:
            ctx.delete_event_time_timer(at)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return TriggerResult.FIRE if time % 2 else TriggerResult.FIRE_AND_PURGE

    def on_merge(self, window, ctx):
        pass

    def clear(self, window, ctx):
        pass


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, [e[2] for e in elements]


def program(readings):
    windows = SlidingEventTimeWindows.of(Time.seconds(8), Time.seconds(4))
    return readings.key_by(lambda r: r[0]).window(windows).trigger(AtElements()).process(Contents())
