"""The end of the input fires whatever timer there is; elements see the watermark that was before them."""

from parity_inputs import readings
from pyflink.datastream import KeyedProcessFunction

INPUTS = {"readings": readings(seed=34)}


class Watermarks(KeyedProcessFunction):
    def process_element(self, value, ctx):
        watermark = ctx.timer_service().current_watermark()
        ctx.timer_service().register_event_time_timer(10**12 + value[2])
        yield value[0], "element", value[2], ctx.timestamp(), watermark, ctx.timestamp() <= watermark

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "timer", timestamp, ctx.timestamp()


def program(readings):
    return readings.key_by(lambda r: r[0]).process(Watermarks())
