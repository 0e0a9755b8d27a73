"""Tumbling windows with an offset; the function sees all elements, in the order in which they came."""

from parity_inputs import readings
from pyflink.common import Time
from pyflink.datastream import ProcessWindowFunction
from pyflink.datastream.window import TumblingEventTimeWindows

INPUTS = {"readings": readings(seed=2)}


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield key, window.start, window.end, window.max_timestamp(), [e[2] for e in elements]


def program(readings):
    windows = TumblingEventTimeWindows.of(Time.seconds(6), Time.seconds(1))
    return readings.key_by(lambda r: r[0]).window(windows).process(Contents())
