"""Many timers of a key: registered twice they fire once, deleted they don't, deleting what isn't there does nothing."""

from parity_inputs import readings
from pyflink.datastream import KeyedProcessFunction, TimeDomain

INPUTS = {"readings": readings(seed=32)}


class Many(KeyedProcessFunction):
    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        now = ctx.timestamp()
        for ahead in (9_000, 5_000, 7_000, 5_000):
            timers.register_event_time_timer(now - now % 1_000 + ahead)
        if value[2] % 4 == 0:
            timers.delete_event_time_timer(now - now % 1_000 + 7_000)
        timers.delete_event_time_timer(now + 123_456)
        yield value[0], "element", value[2], timers.current_watermark() > 0

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "timer", timestamp, ctx.time_domain() == TimeDomain.EVENT_TIME


def program(readings):
    return readings.key_by(lambda r: r[0]).process(Many())
