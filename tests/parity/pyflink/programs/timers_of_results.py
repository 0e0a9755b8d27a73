"""Process functions in a row: what a timer emits has the timer's time, and timers downstream see it in time."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import MapStateDescriptor

INPUTS = {"readings": readings(seed=36, disorder_ms=2_000)}


class SecondLater(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1_000)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp


class TotalOfTen(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.LONG(), Types.LONG()))

    def process_element(self, value, ctx):
        at = ctx.timestamp()
        end = at - at % 10_000 + 9_999
        self.seen.put(end, (self.seen.get(end) or 0) + 1)
        ctx.timer_service().register_event_time_timer(end)
        yield f"came {ctx.get_current_key()}", value, at

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "total", timestamp, self.seen.get(timestamp)
        self.seen.remove(timestamp)


def program(readings):
    later = readings.key_by(lambda r: r[0]).process(SecondLater(), Types.TUPLE([Types.STRING(), Types.LONG()]))
    return later.key_by(lambda v: v[0] < "b").process(TotalOfTen())
