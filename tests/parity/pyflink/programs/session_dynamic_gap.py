"""Sessions whose gap each element says itself."""

from parity_inputs import readings
from pyflink.datastream import ProcessWindowFunction
from pyflink.datastream.window import EventTimeSessionWindows, SessionWindowTimeGapExtractor

INPUTS = {"readings": readings(seed=6)}


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return 500 + 40 * abs(element[3])


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, context.window().end, sorted(e[2] for e in elements)


def program(readings):
    windows = EventTimeSessionWindows.with_dynamic_gap(Gap())
    return readings.key_by(lambda r: r[0]).window(windows).allowed_lateness(1_000).process(Contents())
