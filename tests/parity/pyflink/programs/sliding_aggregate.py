"""Sliding windows: an accumulator for each, and a function that adds the key and the window."""

from parity_inputs import readings
from pyflink.common import Time
from pyflink.datastream import AggregateFunction, ProcessWindowFunction
from pyflink.datastream.window import SlidingEventTimeWindows

INPUTS = {"readings": readings(seed=3, count=60)}


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value[3], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Named(ProcessWindowFunction):
    def process(self, key, context, elements):
        (mean,) = elements
        yield key, context.window().start, mean


def program(readings):
    windows = SlidingEventTimeWindows.of(Time.seconds(9), Time.seconds(3))
    return readings.key_by(lambda r: r[0]).window(windows).aggregate(Mean(), Named())
