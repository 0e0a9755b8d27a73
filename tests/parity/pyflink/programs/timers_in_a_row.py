"""A timer that registers the next one, five times."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ListStateDescriptor, ValueStateDescriptor

INPUTS = {"readings": readings(seed=33, silence_ms=0, step_ms=500, tail_ms=15_000)}


class Ticks(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.left = runtime_context.get_state(ValueStateDescriptor("left", Types.INT()))
        self.since = runtime_context.get_list_state(ListStateDescriptor("since", Types.LONG()))

    def process_element(self, value, ctx):
        self.since.add(value[2])
        if not self.left.value() and value[0] != "tail":
            self.left.update(5)
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + 2_000)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, self.left.value(), list(self.since.get())
        self.since.clear()
        self.left.update(self.left.value() - 1)
        if self.left.value():
            ctx.timer_service().register_event_time_timer(timestamp + 2_000)


def program(readings):
    return readings.key_by(lambda r: r[0]).process(Ticks())
