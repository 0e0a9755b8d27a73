"""A timer that registers the next one, which the watermark has passed too by then."""

from parity_inputs import readings
from pyflink.datastream import KeyedProcessFunction

INPUTS = {"readings": readings(seed=93, count=40)}
DEPARTURE = (
    "PyFlink's processes register a timer's timers when the watermark is through with the others: they fire with the next "
    "watermark, and behind the last one never. Flink itself fires them in the order of time, as here"
)


class Steps(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 100)
        yield value[0], "element", value[2]

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "timer", timestamp
        if timestamp % 3:
            ctx.timer_service().register_event_time_timer(timestamp + 100)


def program(readings):
    return readings.key_by(lambda r: r[0]).process(Steps())
