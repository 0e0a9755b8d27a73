"""Sessions that grow, with an accumulator for each."""

from parity_inputs import readings
from pyflink.common import Time
from pyflink.datastream import AggregateFunction, ProcessWindowFunction
from pyflink.datastream.window import EventTimeSessionWindows

INPUTS = {"readings": readings(seed=5, disorder_ms=0)}


class Seen(AggregateFunction):
    def create_accumulator(self):
        return frozenset()

    def add(self, value, accumulator):
        return accumulator | {value[2]}

    def get_result(self, accumulator):
        return sorted(accumulator)

    def merge(self, acc_a, acc_b):
        return acc_a | acc_b


class Bounds(ProcessWindowFunction):
    def process(self, key, context, elements):
        for seen in elements:
            yield key, context.window().start, context.window().end, seen


def program(readings):
    windows = EventTimeSessionWindows.with_gap(Time.seconds(3))
    return readings.key_by(lambda r: r[0]).window(windows).aggregate(Seen(), Bounds())
