"""Connected streams with a key: state for each, emitting more than one element or none."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import CoFlatMapFunction, RuntimeContext
from pyflink.datastream.state import ListStateDescriptor, ValueStateDescriptor

INPUTS = {"readings": readings(seed=63, count=50), "others": readings(seed=64, count=40)}


class Either(CoFlatMapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.held = runtime_context.get_list_state(ListStateDescriptor("held", Types.LONG()))

    def flat_map1(self, value):
        self.total.update((self.total.value() or 0) + value[3])
        yield f"1{value[0]}", value[2], self.total.value()

    def flat_map2(self, value):
        self.held.add(value[2])
        held = list(self.held.get())
        if len(held) == 3:
            yield f"2{value[0]}", held
            yield f"2{value[0]}", "again", held
            self.held.clear()


def program(readings, others):
    return readings.connect(others).key_by(lambda r: r[0], lambda o: o[0]).flat_map(Either())
