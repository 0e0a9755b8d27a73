"""Values that are not quite what their stream's type says, behind an exchange."""

from parity_inputs import readings
from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction

INPUTS = {"readings": readings(seed=62, count=30)}


class Shown(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.get_current_key(), type(value[1]).__name__, repr(value[1])


class Named(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value.key, value.info, type(value).__name__, repr(value["amount"])


def shown(readings, of, function):
    typed = readings.map(lambda r: (r[0], function(r[3])), Types.TUPLE([Types.STRING(), of]))
    return typed.key_by(lambda v: v[0], Types.STRING()).process(Shown())


def program(readings):
    named = Types.ROW_NAMED(["key", "info", "amount"], [Types.STRING(), Types.STRING(), Types.DOUBLE()])
    return {
        "float": shown(readings, Types.FLOAT(), lambda v: v / 10),
        "double of int": shown(readings, Types.DOUBLE(), lambda v: v),
        "long of bool": shown(readings, Types.LONG(), lambda v: v > 40),
        "row in any order": readings.map(lambda r: Row(amount=r[3] / 2, info="i", key=r[0]), named)
        .key_by(lambda v: v[0])
        .process(Named()),
    }
