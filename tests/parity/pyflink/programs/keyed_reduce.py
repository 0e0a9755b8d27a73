"""The running reduction of each key, with a function and with a class, and with a key of two parts."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import KeySelector, ReduceFunction

INPUTS = {"readings": readings(seed=41)}


class Two(KeySelector):
    def get_key(self, value):
        return value[0], len(value[0])


class Last(ReduceFunction):
    def reduce(self, value1, value2):
        return value2[0], max(value1[1], value2[1]), value2[2], value1[3] + value2[3]


def program(readings):
    by_two = readings.key_by(Two(), Types.TUPLE([Types.STRING(), Types.INT()]))
    return {
        "function": readings.key_by(lambda r: r[0]).reduce(lambda a, b: a if a[3] >= b[3] else b),
        "class": by_two.reduce(Last()),
    }
