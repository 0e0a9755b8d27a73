"""Values that are not quite what their stream's type says, seen by the next function of the same task."""

from parity_inputs import readings
from pyflink.common import Types

INPUTS = {"readings": readings(seed=94, count=20)}


def program(readings):
    narrow = Types.TUPLE([Types.STRING(), Types.FLOAT()])
    wide = Types.TUPLE([Types.STRING(), Types.DOUBLE()])
    return {
        "float": readings.map(lambda r: (r[0], r[3] / 10), narrow).map(lambda v: (v[0], repr(v[1]))),
        "double": readings.map(lambda r: (r[0], r[3]), wide).map(lambda v: (v[0], repr(v[1]))),
    }
