"""Sessions with allowed lateness: late elements make a session fire again or join two, others go to a side output."""

from parity_inputs import readings
from pyflink.common import Time, Types
from pyflink.datastream import OutputTag, ProcessWindowFunction
from pyflink.datastream.window import EventTimeSessionWindows

INPUTS = {"readings": readings(seed=7, count=120, disorder_ms=9_000, bound_ms=500)}
TIMESTAMPS = False
ELEMENT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()])
LATE = OutputTag("late", ELEMENT)


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, context.window().end, sorted(e[2] for e in elements)


def program(readings):
    windows = EventTimeSessionWindows.with_gap(Time.seconds(2))
    found = (
        readings.key_by(lambda r: r[0]).window(windows).allowed_lateness(3_000).side_output_late_data(LATE).process(Contents())
    )
    return {"sessions": found, "late": found.get_side_output(LATE)}
