"""Values that go on changing after they were handed over: buffers, reductions in place, accumulators, siblings."""

from parity_inputs import readings
from pyflink.common import Row, Time, Types
from pyflink.datastream import AggregateFunction, FlatMapFunction, KeyedProcessFunction, ReduceFunction
from pyflink.datastream.window import TumblingEventTimeWindows

INPUTS = {"readings": readings(seed=61, count=40)}
PARALLELISM = 1  # the functions remember in their attributes, of which each process has its own


class Growing(FlatMapFunction):
    def __init__(self):
        self.seen = {}

    def flat_map(self, value):
        seen = self.seen.setdefault(value[0], [])
        seen.append(value[2])
        yield value[0], seen
        seen.append(-value[2])
        yield value[0], seen


class Counting(KeyedProcessFunction):
    def __init__(self):
        self.counts = {}

    def process_element(self, value, ctx):
        counts = self.counts.setdefault(value[0], {})
        counts[value[3] % 3] = counts.get(value[3] % 3, 0) + 1
        yield value[0], counts
        counts["late"] = value[2]


class InPlace(ReduceFunction):
    def reduce(self, value1, value2):
        value1[1].extend(value2[1])
        return value1


class Listing(AggregateFunction):
    def create_accumulator(self):
        return ["", []]

    def add(self, value, accumulator):
        accumulator[0] = value[0]
        accumulator[1].append(value[3])
        return accumulator

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return [a[0], a[1] + b[1]]


def spoil(value):
    value["seen"].append("spoilt")
    value["seq"] = -1
    return value["key"], str(value)


def spoil_row(row):
    row["seq"] = -1
    row.seen.append(-1)
    return row.key, str(row.seq), str(row.seen)


def program(readings):
    dicts = readings.map(lambda r: {"key": r[0], "seq": r[2], "seen": [r[3]]})
    named = Types.ROW_NAMED(["key", "seq", "seen"], [Types.STRING(), Types.LONG(), Types.LIST(Types.LONG())])
    rows = readings.map(lambda r: Row(key=r[0], seq=r[2], seen=[r[3]]), named)
    lists = readings.map(lambda r: [r[0], [r[3]]])
    windows = readings.key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(Time.milliseconds(3000)))
    return {
        "growing": readings.flat_map(Growing()).map(lambda v: (v[0], str(v[1]))),
        "counting": readings.key_by(lambda r: r[0]).process(Counting()).map(lambda v: (v[0], str(v[1]))),
        "reduced": lists.key_by(lambda v: v[0]).reduce(InPlace()).map(lambda v: (v[0], str(v[1]))),
        "windows": windows.aggregate(Listing()).map(lambda v: (v[0], str(sorted(v[1])))),
        "spoilt": dicts.map(spoil),
        "dicts": dicts.map(lambda d: (d["key"], str(d))),
        "spoilt rows": rows.map(spoil_row),
        "rows": rows.map(lambda r: (r.key, str(r.seq), str(r.seen))),
    }
