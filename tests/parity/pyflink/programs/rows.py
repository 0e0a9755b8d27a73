"""Rows, lists, maps, floats, None and strings of all kinds through typed and untyped streams."""

from parity_inputs import readings
from pyflink.common import Row, Types

INPUTS = {"readings": readings(seed=45, count=40)}


def row(value):
    named = Row("key", "seq", "part", "both", "by_key", "even")
    key, _, seq, reading = value
    return named(key + "é\u2028'\"", None if seq % 4 == 0 else seq, reading / 7, [seq, reading], {key: reading}, seq % 2 == 0)


def program(readings):
    fields = [
        Types.STRING(),
        Types.LONG(),
        Types.DOUBLE(),
        Types.LIST(Types.LONG()),
        Types.MAP(Types.STRING(), Types.LONG()),
        Types.BOOLEAN(),
    ]
    typed = readings.map(row, Types.ROW_NAMED(["key", "seq", "part", "both", "by_key", "even"], fields))
    counted = Types.TUPLE([Types.STRING(), Types.DOUBLE(), Types.SHORT(), Types.BASIC_ARRAY(Types.STRING())])
    return {
        "typed": typed,
        "untyped": readings.map(row),
        "fields": typed.map(lambda r: (r.key, r["seq"], r[2], r.both, r.by_key)),
        "tuples": readings.map(lambda r: (r[0], r[3] / 3, r[3], [r[0], str(r[2])]), counted),
    }
