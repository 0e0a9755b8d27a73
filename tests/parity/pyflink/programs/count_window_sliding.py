"""Count windows that overlap."""

from parity_inputs import readings
from pyflink.datastream import ProcessWindowFunction

INPUTS = {"readings": readings(seed=11, count=50)}
TIMESTAMPS = False


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().id, [e[2] for e in elements]


def program(readings):
    return readings.key_by(lambda r: r[0]).count_window(6, 2).process(Contents())
