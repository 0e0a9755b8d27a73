"""Timers for a time that has passed: they fire when the watermark next moves on, and elements may come before that."""

from parity_inputs import readings
from pyflink.datastream import KeyedProcessFunction

INPUTS = {"readings": readings(seed=92, count=40, keys="ab")}


class Past(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() - 9_000)
        yield value[0], "element", value[2]

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "timer", timestamp


def program(readings):
    return readings.key_by(lambda r: r[0]).process(Past())
