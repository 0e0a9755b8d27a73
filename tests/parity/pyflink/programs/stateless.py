"""map, flat_map and filter, as functions and as classes, and a field left out of all elements."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import FilterFunction, FlatMapFunction, MapFunction, ProcessFunction, RuntimeContext

INPUTS = {"readings": readings(seed=44, count=50)}


class Scaled(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.factor = 3

    def map(self, value):
        return value[0], value[2], value[3] * self.factor


class Positive(FilterFunction):
    def filter(self, value):
        return value[2] > 0


class Parts(FlatMapFunction):
    def flat_map(self, value):
        for part in range(value[1] % 3):
            yield value[0], value[1], part


class Timed(ProcessFunction):
    def process_element(self, value, ctx):
        if value[2] % 2:
            yield value, ctx.timestamp()


def several(value):
    return [(value[0], value[2])] * (value[2] % 3)


def program(readings):
    scaled = readings.map(Scaled(), Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()]))
    return {
        "scaled": scaled,
        "positive": scaled.filter(Positive()).filter(lambda v: v[1] % 5),
        "parts": scaled.flat_map(Parts()),
        "several": readings.flat_map(several),
        "timed": readings.process(Timed()),
    }
