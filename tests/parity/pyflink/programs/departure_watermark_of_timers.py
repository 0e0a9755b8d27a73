"""What a timer sees as the watermark, and what state it finds, where the watermark went far in one step."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor

INPUTS = {"readings": readings(seed=91, count=40)}
DEPARTURE = (
    "Flink's watermark goes from one value to the next at once, so that its timers see a later watermark than their time, "
    "and elements of timers upstream all come before the timers downstream. Here it passes every millisecond"
)


class SecondLater(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1_000)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, ctx.timer_service().current_watermark()


class CountOfTwoSeconds(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        at = ctx.timestamp()
        ctx.timer_service().register_event_time_timer(at - at % 2_000 + 1_999)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, self.seen.value()
        self.seen.clear()


def program(readings):
    later = readings.key_by(lambda r: r[0]).process(SecondLater())
    return {"timers": later, "counts": later.key_by(lambda v: v[0] < "b").process(CountOfTwoSeconds())}
