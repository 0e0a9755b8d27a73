"""Functions with a key that keep state: numbering, leaving out repetitions, emitting pairs."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import FilterFunction, FlatMapFunction, MapFunction, RuntimeContext
from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

INPUTS = {"readings": readings(seed=40)}


class Numbered(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))

    def map(self, value):
        self.number.update((self.number.value() or 0) + 1)
        return value[0], value[2], self.number.value()


class New(FilterFunction):
    def open(self, runtime_context: RuntimeContext):
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.LONG(), Types.BOOLEAN()))

    def filter(self, value):
        new = not self.seen.contains(value[3] % 10)
        self.seen.put(value[3] % 10, True)
        return new


class Pairs(FlatMapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.held = runtime_context.get_list_state(ListStateDescriptor("held", Types.LONG()))

    def flat_map(self, value):
        self.held.add(value[2])
        held = list(self.held.get())
        if len(held) == 2:
            yield value[0], held[0], held[1]
            yield value[0], held[1], held[0]
            self.held.clear()


def program(readings):
    keyed = readings.key_by(lambda r: r[0])
    return {"numbered": keyed.map(Numbered()), "new": keyed.filter(New()), "pairs": keyed.flat_map(Pairs())}
