"""Two streams and a function for each; what is None is left out."""

from parity_inputs import readings
from pyflink.datastream import CoMapFunction

INPUTS = {"readings": readings(seed=61, count=40), "others": readings(seed=62, count=30, keys="xyz")}


class Either(CoMapFunction):
    def map1(self, value):
        return f"1{value[0]}", value[2]

    def map2(self, value):
        return None if value[3] < 0 else (f"2{value[0]}", value[3])


def program(readings, others):
    return readings.connect(others).map(Either())
