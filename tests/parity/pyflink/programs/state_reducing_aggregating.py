"""Reducing and aggregating state."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import AggregateFunction, KeyedProcessFunction, ReduceFunction, RuntimeContext
from pyflink.datastream.state import AggregatingStateDescriptor, ReducingStateDescriptor

INPUTS = {"readings": readings(seed=39)}


class Greatest(ReduceFunction):
    def reduce(self, value1, value2):
        return max(value1, value2)


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Figures(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.greatest = runtime_context.get_reducing_state(ReducingStateDescriptor("greatest", Greatest(), Types.LONG()))
        accumulator = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.mean = runtime_context.get_aggregating_state(AggregatingStateDescriptor("mean", Mean(), accumulator))

    def process_element(self, value, ctx):
        before = self.greatest.get(), self.mean.get()
        if value[3] < -10:
            self.greatest.clear()
            self.mean.clear()
        else:
            self.greatest.add(value[3])
            self.mean.add(value[3])
        yield value[0], value[2], before, self.greatest.get(), self.mean.get()


def program(readings):
    return readings.key_by(lambda r: r[0]).process(Figures())
