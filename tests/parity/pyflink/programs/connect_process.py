"""Connected streams without keys: a process function with a side output, and timestamps."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import CoProcessFunction, OutputTag

INPUTS = {"readings": readings(seed=69, count=40), "others": readings(seed=70, count=30)}
ODD = OutputTag("odd", Types.TUPLE([Types.STRING(), Types.LONG()]))


class Either(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield f"1{value[0]}", value[2], ctx.timestamp() == value[1]
        if value[2] % 2:
            yield ODD, (f"1{value[0]}", value[2])

    def process_element2(self, value, ctx):
        if value[2] % 2:
            yield ODD, (f"2{value[0]}", value[2])
        else:
            yield f"2{value[0]}", value[2], ctx.timestamp() == value[1]


def program(readings, others):
    found = readings.connect(others).process(Either())
    return {"main": found, "odd": found.get_side_output(ODD)}
