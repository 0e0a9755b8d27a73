"""Elements held in state and emitted in the order of their time, late ones dropped."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import MapStateDescriptor

INPUTS = {"readings": readings(seed=35, disorder_ms=5_000)}


class Sorted(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.held = runtime_context.get_map_state(MapStateDescriptor("held", Types.LONG(), Types.LONG()))

    def process_element(self, value, ctx):
        if ctx.timestamp() > ctx.timer_service().current_watermark():
            self.held.put(ctx.timestamp(), value[2])
            ctx.timer_service().register_event_time_timer(ctx.timestamp())

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, self.held.get(timestamp), self.held.is_empty()
        self.held.remove(timestamp)


def program(readings):
    return readings.key_by(lambda r: r[0]).process(Sorted())
