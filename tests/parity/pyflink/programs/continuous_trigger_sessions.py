"""Early results of sessions: the time at which to fire next is merged with the windows."""

from parity_inputs import readings
from pyflink.common import Time
from pyflink.datastream import ProcessWindowFunction
from pyflink.datastream.window import ContinuousEventTimeTrigger, EventTimeSessionWindows

INPUTS = {"readings": readings(seed=16, count=60, disorder_ms=1_500, silence_ms=0, tail_ms=10_000)}
TIMESTAMPS = False


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, context.window().end, sorted(e[2] for e in elements)


def program(readings):
    windows = EventTimeSessionWindows.with_gap(Time.seconds(4))
    trigger = ContinuousEventTimeTrigger.of(Time.seconds(3))
    return readings.filter(lambda r: r[0] != "tail").key_by(lambda r: r[0]).window(windows).trigger(trigger).process(Contents())
