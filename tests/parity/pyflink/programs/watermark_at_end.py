"""No watermark before the end: nothing is late, and all windows fire there, one after the other."""

from parity_inputs import readings
from pyflink.common import Time
from pyflink.datastream import ProcessWindowFunction
from pyflink.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows

INPUTS = {"readings": readings(seed=24, disorder_ms=30_000, bound_ms=None)}


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, context.window().end, sorted(e[2] for e in elements)


def program(readings):
    keyed = readings.key_by(lambda r: r[0])
    return {
        "tumbling": keyed.window(TumblingEventTimeWindows.of(Time.seconds(10))).process(Contents()),
        "sessions": keyed.window(EventTimeSessionWindows.with_gap(Time.seconds(1))).process(Contents()),
    }
