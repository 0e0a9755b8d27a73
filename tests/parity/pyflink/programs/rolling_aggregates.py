"""sum, min, max, min_by and max_by of a field."""

from parity_inputs import readings
from pyflink.common import Types

INPUTS = {"readings": readings(seed=42)}


def program(readings):
    small = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    keyed = readings.map(lambda r: (r[0], r[2], r[3] // 10), small).key_by(lambda r: r[0], Types.STRING())
    return {
        "sum": keyed.sum(2),
        "min": keyed.min(2),
        "max": keyed.max(2),
        "min_by": keyed.min_by(2),
        "max_by": keyed.max_by(2),
    }
