"""A timer for each key that every element moves on: the keys of which nothing was heard for three seconds."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor

INPUTS = {"readings": readings(seed=31, disorder_ms=2_000)}


class Quiet(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.due = runtime_context.get_state(ValueStateDescriptor("due", Types.LONG()))

    def process_element(self, value, ctx: KeyedProcessFunction.Context):
        timers = ctx.timer_service()
        due = max(self.due.value() or 0, ctx.timestamp() + 3_000)
        if self.due.value() is not None:
            timers.delete_event_time_timer(self.due.value())
        timers.register_event_time_timer(due)
        self.due.update(due)

    def on_timer(self, timestamp, ctx: KeyedProcessFunction.OnTimerContext):
        yield ctx.get_current_key(), "quiet at", timestamp, ctx.timestamp()
        self.due.clear()


def program(readings):
    return readings.key_by(lambda r: r[0], Types.STRING()).process(Quiet())
