"""A count within sessions: the counts of merging windows are added up."""

from parity_inputs import readings
from pyflink.common import Time
from pyflink.datastream import ProcessWindowFunction
from pyflink.datastream.window import CountTrigger, EventTimeSessionWindows

INPUTS = {"readings": readings(seed=14)}
TIMESTAMPS = False


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, context.window().end, sorted(e[2] for e in elements)


def program(readings):
    windows = EventTimeSessionWindows.with_gap(Time.seconds(4))
    return readings.key_by(lambda r: r[0]).window(windows).trigger(CountTrigger.of(3)).process(Contents())
