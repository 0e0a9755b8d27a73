"""Map state: entries read, written, removed, counted."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import MapStateDescriptor

INPUTS = {"readings": readings(seed=38)}


class Entries(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.entries = runtime_context.get_map_state(MapStateDescriptor("entries", Types.STRING(), Types.LONG()))

    def process_element(self, value, ctx):
        seq, reading = value[2], value[3]
        name = f"n{reading % 5}"
        before = self.entries.get(name)
        if reading > 85:
            self.entries.clear()
        elif reading % 7 == 0:
            self.entries.remove(name)
        elif reading % 7 == 1:
            self.entries.put(name, seq)
            self.entries["both"] = reading
        else:
            self.entries.put(name, seq)
        yield (
            value[0],
            seq,
            before,
            self.entries.contains(name),
            self.entries.is_empty(),
            sorted(self.entries.items()),
            sorted(self.entries.keys()),
            sorted(self.entries.values()),
            "both" in self.entries,
        )


def program(readings):
    return readings.key_by(lambda r: r[0]).process(Entries())
