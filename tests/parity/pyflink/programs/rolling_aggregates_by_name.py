"""Rolling aggregates of Rows, by the name of the field, keyed by a field's name."""

from parity_inputs import readings
from pyflink.common import Row, Types

INPUTS = {"readings": readings(seed=43, count=50)}


def program(readings):
    named = Types.ROW_NAMED(["key", "seq", "amount"], [Types.STRING(), Types.LONG(), Types.DOUBLE()])
    rows = readings.map(lambda r: Row(key=r[0], seq=r[2], amount=r[3] / 4), named)
    keyed = rows.key_by(lambda r: r.key, Types.STRING())
    return {"sum": keyed.sum("amount"), "max": keyed.max("amount"), "min_by": keyed.min_by("amount")}
