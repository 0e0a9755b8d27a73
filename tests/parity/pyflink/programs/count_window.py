"""Windows of so many elements of a key; what doesn't fill a window never comes out."""

from parity_inputs import readings
from pyflink.datastream import ProcessWindowFunction

INPUTS = {"readings": readings(seed=10)}
TIMESTAMPS = False


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().id, [e[2] for e in elements]


def program(readings):
    keyed = readings.key_by(lambda r: r[0])
    return {
        "reduced": keyed.count_window(4).reduce(lambda a, b: (a[0], max(a[1], b[1]), b[2], a[3] + b[3])),
        "processed": keyed.count_window(5).process(Contents()),
    }
