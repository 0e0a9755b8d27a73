"""A window function with a side output of its own beside that for late elements."""

from parity_inputs import readings
from pyflink.common import Time, Types
from pyflink.datastream import OutputTag, ProcessWindowFunction
from pyflink.datastream.window import TumblingEventTimeWindows

INPUTS = {"readings": readings(seed=47, count=100, disorder_ms=9_000, bound_ms=1_000)}
LATE = OutputTag("late", Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()]))
SINGLE = OutputTag("single", Types.TUPLE([Types.STRING(), Types.LONG()]))


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        seen = [e[2] for e in elements]
        if len(seen) == 1:
            yield SINGLE, (key, seen[0])
        else:
            yield key, context.window().start, seen


def program(readings):
    windows = TumblingEventTimeWindows.of(Time.seconds(4))
    found = readings.key_by(lambda r: r[0]).window(windows).side_output_late_data(LATE).process(Contents())
    return {"main": found, "single": found.get_side_output(SINGLE), "late": found.get_side_output(LATE)}
