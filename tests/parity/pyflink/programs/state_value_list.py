"""Value state and list state: update, add_all, clear, and what an empty one gives."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ListStateDescriptor, ValueStateDescriptor

INPUTS = {"readings": readings(seed=37)}


class History(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        pair = Types.TUPLE([Types.LONG(), Types.STRING()])
        self.last = runtime_context.get_state(ValueStateDescriptor("last", pair))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        seq, reading = value[2], value[3]
        last = self.last.value()
        if reading > 80:
            self.last.clear()
            self.seen.clear()
        elif reading > 60:
            self.seen.update([reading, -reading])
        elif reading > 30:
            self.seen.add_all([seq, seq + 1])
        else:
            self.last.update((seq, value[0] * 2))
            self.seen.add(reading)
        yield value[0], seq, last, self.last.value(), list(self.seen.get())


def program(readings):
    return readings.key_by(lambda r: r[0]).process(History())
