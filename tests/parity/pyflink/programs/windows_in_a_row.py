"""Windows over the results of windows: a result has its window's greatest timestamp, and is in time for the next."""

from parity_inputs import readings
from pyflink.common import Time
from pyflink.datastream import ProcessWindowFunction
from pyflink.datastream.functions import ProcessAllWindowFunction
from pyflink.datastream.window import TumblingEventTimeWindows

INPUTS = {"readings": readings(seed=23, count=120)}


class Total(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().end, sum(e[3] for e in elements)


class Best(ProcessAllWindowFunction):
    def process(self, context, elements):
        totals = sorted((total, key, end) for key, end, total in elements)
        yield context.window().end, totals[-1], len(totals)


def program(readings):
    totals = readings.key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(Time.seconds(3))).process(Total())
    best = totals.window_all(TumblingEventTimeWindows.of(Time.seconds(9))).process(Best())
    return {"totals": totals, "best": best}
