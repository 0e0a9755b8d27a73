"""Windows in BATCH mode: nothing is late, and all of them come out at the end."""

from parity_inputs import readings
from pyflink.common import Time, Types
from pyflink.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows

INPUTS = {"readings": readings(seed=71, bound_ms=0)}
MODE = "BATCH"


def program(readings):
    keyed = readings.map(lambda r: (r[0], r[2], r[3]), Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])).key_by(
        lambda r: r[0], Types.STRING()
    )

    def most(windows):
        return windows.reduce(lambda a, b: (a[0], max(a[1], b[1]), a[2] + b[2]))

    tumbling = most(keyed.window(TumblingEventTimeWindows.of(Time.seconds(5))))
    return {
        "tumbling": tumbling,
        "sliding": most(keyed.window(SlidingEventTimeWindows.of(Time.seconds(6), Time.seconds(2)))),
        "windows of windows": most(
            tumbling.key_by(lambda r: r[0], Types.STRING()).window(TumblingEventTimeWindows.of(Time.seconds(20)))
        ),
    }
