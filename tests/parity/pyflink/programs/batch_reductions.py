"""Reductions and rolling aggregates of a bounded input in BATCH mode: the last value of each key, and of keys of these."""

from parity_inputs import readings
from pyflink.common import Types

INPUTS = {"readings": readings(seed=70)}
MODE = "BATCH"


def program(readings):
    pairs = readings.map(lambda r: (r[0], r[3]), Types.TUPLE([Types.STRING(), Types.LONG()]))
    keyed = pairs.key_by(lambda r: r[0], Types.STRING())
    return {
        "reduce": keyed.reduce(lambda a, b: (a[0], a[1] + b[1])),
        "sum": keyed.sum(1),
        "min": keyed.min(1),
        "max_by": keyed.max_by(1),
        "of sums": keyed.sum(1)
        .map(lambda r: ("all", r[1]), Types.TUPLE([Types.STRING(), Types.LONG()]))
        .key_by(lambda r: r[0], Types.STRING())
        .max(1),
    }
