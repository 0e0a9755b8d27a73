"""What waits for the wall clock when the input ends doesn't come about: neither windows nor timers."""

from parity_inputs import readings
from pyflink.common import Time
from pyflink.datastream import KeyedProcessFunction, ProcessWindowFunction
from pyflink.datastream.window import ProcessingTimeSessionWindows, TumblingProcessingTimeWindows

INPUTS = {"readings": readings(seed=83, count=40)}


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, len(list(elements))


class Tomorrow(KeyedProcessFunction):
    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 86_400_000)
        yield value[0], value[2]

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "timer"


def program(readings):
    keyed = readings.key_by(lambda r: r[0])
    return {
        "windows": keyed.window(TumblingProcessingTimeWindows.of(Time.days(1000), Time.days(300))).process(Contents()),
        "sessions": keyed.window(ProcessingTimeSessionWindows.with_gap(Time.days(2))).process(Contents()),
        "timers": keyed.process(Tomorrow()),
    }
