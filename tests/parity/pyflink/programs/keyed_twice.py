"""One key after the other, with a window in between and a plain function that gives up the key."""

from parity_inputs import readings
from pyflink.common import Time, Types
from pyflink.datastream import AggregateFunction, MapFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.datastream.window import SlidingEventTimeWindows

INPUTS = {"readings": readings(seed=85)}


class Total(AggregateFunction):
    def create_accumulator(self):
        return "", 0

    def add(self, value, accumulator):
        return value[0], accumulator[1] + value[3]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a[0] or acc_b[0], acc_a[1] + acc_b[1]


class Difference(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.before = runtime_context.get_state(ValueStateDescriptor("before", Types.LONG()))

    def map(self, value):
        before = self.before.value() or 0
        self.before.update(value[1])
        return value[0], value[1], value[1] - before


def program(readings):
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    windows = SlidingEventTimeWindows.of(Time.seconds(6), Time.seconds(3))
    totals = readings.key_by(lambda r: r[0], Types.STRING()).window(windows).aggregate(Total(), output_type=pair)
    return totals.map(lambda t: (t[0].upper(), t[1]), pair).key_by(lambda t: t[0]).map(Difference())
