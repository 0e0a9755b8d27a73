"""State of the window and state of the key in a window function, with windows that fire several times."""

from parity_inputs import readings
from pyflink.common import Time, Types
from pyflink.datastream import ProcessWindowFunction
from pyflink.datastream.state import ListStateDescriptor, ValueStateDescriptor
from pyflink.datastream.window import TumblingEventTimeWindows

INPUTS = {"readings": readings(seed=21, count=100, disorder_ms=9_000, bound_ms=1_000)}
TIMESTAMPS = False


class Firings(ProcessWindowFunction):
    def __init__(self):
        self.of_window = ValueStateDescriptor("of_window", Types.LONG())
        self.of_key = ListStateDescriptor("of_key", Types.LONG())

    def process(self, key, context, elements):
        firings = context.window_state().get_state(self.of_window)
        firings.update((firings.value() or 0) + 1)
        ends = context.global_state().get_list_state(self.of_key)
        ends.add(context.window().end)
        yield key, context.window().start, firings.value(), len(list(ends.get())), len(list(elements))

    def clear(self, context):
        context.window_state().get_state(self.of_window).clear()


def program(readings):
    windows = TumblingEventTimeWindows.of(Time.seconds(6))
    return readings.key_by(lambda r: r[0]).window(windows).allowed_lateness(3_000).process(Firings())
