"""Timers in BATCH mode: they fire when all elements of their key have come."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.functions import TimeDomain
from pyflink.datastream.state import ValueStateDescriptor

INPUTS = {"readings": readings(seed=72)}
MODE = "BATCH"
TIMESTAMPS = False  # PyFlink stamps what processing-time timers emit
ORDERED = False  # elements of a key come by timestamp in Flink, and as they are in the source here


class AtTheEnd(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        timers = ctx.timer_service()
        if value[2] % 3 == 0:
            timers.register_event_time_timer(value[1] + 1000)
        if value[2] % 10 == 0:
            timers.register_processing_time_timer(10**15 + value[2])
        yield value[0], "element", value[2], timers.current_watermark()

    def on_timer(self, timestamp, ctx):
        if ctx.time_domain() == TimeDomain.EVENT_TIME:
            yield ctx.get_current_key(), "event", timestamp, self.count.value()
        else:
            yield ctx.get_current_key(), "processing", timestamp, self.count.value()


class Behind(KeyedProcessFunction):
    """All that comes out of the timers upstream is here ahead of the first timer."""

    def open(self, runtime_context: RuntimeContext):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(1_000_000)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, self.count.value()


def program(readings):
    row = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG()])
    first = readings.key_by(lambda r: r[0], Types.STRING()).process(AtTheEnd(), row)
    behind = first.key_by(lambda r: r[1], Types.STRING()).process(
        Behind(), Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    )
    return {"timers": first, "behind": behind}
