"""Early results every two seconds of event time, and purging ones."""

from parity_inputs import readings
from pyflink.common import Time
from pyflink.datastream import ProcessWindowFunction
from pyflink.datastream.window import ContinuousEventTimeTrigger, PurgingTrigger, TumblingEventTimeWindows

INPUTS = {"readings": readings(seed=15, count=60, disorder_ms=1_500, silence_ms=0, tail_ms=20_000)}
TIMESTAMPS = False


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, [e[2] for e in elements]


def program(readings):
    keyed = readings.filter(lambda r: r[0] != "tail").key_by(lambda r: r[0])
    windows = TumblingEventTimeWindows.of(Time.seconds(10))
    trigger = ContinuousEventTimeTrigger.of(Time.seconds(2))
    return {
        "early": keyed.window(windows).trigger(trigger).process(Contents()),
        "purged": keyed.window(windows).trigger(PurgingTrigger.of(trigger)).process(Contents()),
    }
