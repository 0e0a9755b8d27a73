"""A trigger of one's own, with state for each window: fires when the values add up to enough, and at the end."""

from parity_inputs import readings
from pyflink.common import Time, Types
from pyflink.datastream import ProcessWindowFunction, Trigger, TriggerResult
from pyflink.datastream.state import ReducingStateDescriptor
from pyflink.datastream.window import TumblingEventTimeWindows

INPUTS = {"readings": readings(seed=17)}
TIMESTAMPS = False


class Enough(Trigger):
    def __init__(self):
        self.total = ReducingStateDescriptor("total", lambda a, b: a + b, Types.LONG())

    def on_element(self, element, timestamp, window, ctx):
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        total = ctx.get_partitioned_state(self.total)
        total.add(max(element[3], 0))
        if total.get() < 100:
            return TriggerResult.CONTINUE
        total.clear()
        return TriggerResult.FIRE_AND_PURGE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return TriggerResult.FIRE_AND_PURGE

    def on_merge(self, window, ctx):
        pass

    def clear(self, window, ctx):
        ctx.get_partitioned_state(self.total).clear()
        ctx.delete_event_time_timer(window.max_timestamp())


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, [(e[2], e[3]) for e in elements]


def program(readings):
    windows = TumblingEventTimeWindows.of(Time.seconds(12))
    return readings.key_by(lambda r: r[0]).window(windows).trigger(Enough()).process(Contents())
