"""Sliding windows: an element that is too late for one of its windows still counts in the next; too late for all, it is late."""

from parity_inputs import readings
from pyflink.common import Time, Types
from pyflink.datastream import OutputTag, ProcessWindowFunction
from pyflink.datastream.window import SlidingEventTimeWindows

INPUTS = {"readings": readings(seed=9, count=70, disorder_ms=10_000, bound_ms=0)}
LATE = OutputTag("late", Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()]))


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, [e[2] for e in elements]


def program(readings):
    windows = SlidingEventTimeWindows.of(Time.seconds(6), Time.seconds(2))
    found = readings.key_by(lambda r: r[0]).window(windows).side_output_late_data(LATE).process(Contents())
    return {"windows": found, "late": found.get_side_output(LATE)}
