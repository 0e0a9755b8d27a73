"""Windows without keys."""

from parity_inputs import readings
from pyflink.common import Time
from pyflink.datastream.functions import AggregateFunction, AllWindowFunction, ProcessAllWindowFunction
from pyflink.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows

INPUTS = {"readings": readings(seed=19, disorder_ms=0)}


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Bounds(ProcessAllWindowFunction):
    def process(self, context, elements):
        yield context.window().start, context.window().end, list(elements)


class Sequence(AllWindowFunction):
    def apply(self, window, inputs):
        return [(window.start, window.end, [i[2] for i in inputs])]


def program(readings):
    return {
        "aggregate": readings.window_all(TumblingEventTimeWindows.of(Time.seconds(5))).aggregate(Count(), Bounds()),
        "reduce": readings.window_all(EventTimeSessionWindows.with_gap(Time.seconds(2))).reduce(
            lambda a, b: a if a[3] >= b[3] else b
        ),
        "apply": readings.window_all(SlidingEventTimeWindows.of(Time.seconds(8), Time.seconds(4))).apply(Sequence()),
    }
