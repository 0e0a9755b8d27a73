"""Three streams become one, one of them twice."""

from parity_inputs import readings
from pyflink.common import Time, Types
from pyflink.datastream import ProcessWindowFunction
from pyflink.datastream.window import TumblingEventTimeWindows

INPUTS = {
    "readings": readings(seed=48, count=50, disorder_ms=0),
    "others": readings(seed=49, count=40, disorder_ms=0, keys="bcd"),
}


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, sorted((e[2], e[3]) for e in elements)


def program(readings, others):
    element = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()])
    small = readings.filter(lambda r: r[3] < 20).map(lambda r: (r[0], r[1], r[2], 0), element)
    large = readings.filter(lambda r: r[3] >= 20)
    every = large.union(small, others)
    return every.key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(Time.seconds(5))).process(Contents())
