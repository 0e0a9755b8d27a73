"""One window for ever and a count: without a purge it accumulates, with a purge it starts anew."""

from parity_inputs import readings
from pyflink.datastream import ProcessWindowFunction
from pyflink.datastream.window import CountTrigger, GlobalWindows, PurgingTrigger

INPUTS = {"readings": readings(seed=12, count=60)}
TIMESTAMPS = False


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().max_timestamp(), [e[2] for e in elements]


def program(readings):
    windowed = readings.key_by(lambda r: r[0]).window(GlobalWindows.create())
    purged = readings.key_by(lambda r: r[0]).window(GlobalWindows.create())
    return {
        "accumulating": windowed.trigger(CountTrigger.of(5)).process(Contents()),
        "purging": purged.trigger(PurgingTrigger.of(CountTrigger.of(5))).process(Contents()),
        "never": readings.key_by(lambda r: r[0]).window(GlobalWindows.create()).process(Contents()),
    }
