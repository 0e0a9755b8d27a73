"""A count within windows of time: what is left when the window ends doesn't come out."""

from parity_inputs import readings
from pyflink.common import Time
from pyflink.datastream import ProcessWindowFunction
from pyflink.datastream.window import CountTrigger, PurgingTrigger, TumblingEventTimeWindows

INPUTS = {"readings": readings(seed=13)}
TIMESTAMPS = False


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, [e[2] for e in elements]


def program(readings):
    keyed = readings.key_by(lambda r: r[0])
    windows = TumblingEventTimeWindows.of(Time.seconds(8))
    return {
        "counted": keyed.window(windows).trigger(CountTrigger.of(2)).process(Contents()),
        "purged": keyed.window(windows).trigger(PurgingTrigger.of(CountTrigger.of(2))).process(Contents()),
    }
