"""Allowed lateness: a window fires again for each late element, and elements beyond it go to a side output."""

from parity_inputs import readings
from pyflink.common import Time, Types
from pyflink.datastream import AggregateFunction, OutputTag, ProcessWindowFunction
from pyflink.datastream.window import TumblingEventTimeWindows

INPUTS = {"readings": readings(seed=8, count=120, disorder_ms=12_000, bound_ms=1_000)}
TIMESTAMPS = False
LATE = OutputTag("late", Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()]))


class Total(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value[3]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Named(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().end, *elements


def program(readings):
    found = (
        readings.key_by(lambda r: r[0])
        .window(TumblingEventTimeWindows.of(Time.seconds(5)))
        .allowed_lateness(4_000)
        .side_output_late_data(LATE)
        .aggregate(Total(), Named())
    )
    return {"totals": found, "late": found.get_side_output(LATE)}
