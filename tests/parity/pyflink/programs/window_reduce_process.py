"""A reduction for each window, and a function that gets it as its only element and emits several."""

from parity_inputs import readings
from pyflink.common import Time
from pyflink.datastream import ProcessWindowFunction, ReduceFunction
from pyflink.datastream.window import EventTimeSessionWindows

INPUTS = {"readings": readings(seed=22, disorder_ms=0)}


class Latest(ReduceFunction):
    def reduce(self, value1, value2):
        return value1 if value1[1] >= value2[1] else value2


class Twice(ProcessWindowFunction):
    def process(self, key, context, elements):
        for element in elements:
            yield key, "start", context.window().start, element
            yield key, "end", context.window().end, element


def program(readings):
    windows = EventTimeSessionWindows.with_gap(Time.milliseconds(2500))
    return readings.key_by(lambda r: r[0]).window(windows).reduce(Latest(), Twice())
