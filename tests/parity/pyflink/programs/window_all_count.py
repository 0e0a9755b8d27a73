"""Count windows and a counting trigger without keys."""

from parity_inputs import readings
from pyflink.datastream.functions import ProcessAllWindowFunction
from pyflink.datastream.window import (
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    GlobalWindows,
    PurgingTrigger,
)

INPUTS = {"readings": readings(seed=20, count=50)}
TIMESTAMPS = False


class Sequence(ProcessAllWindowFunction):
    def process(self, context, elements):
        yield [e[2] for e in elements], context.window().max_timestamp()


def program(readings):
    return {
        "tumbling": readings.window_all(CountTumblingWindowAssigner.of(7)).process(Sequence()),
        "sliding": readings.window_all(CountSlidingWindowAssigner.of(9, 6)).process(Sequence()),
        "global": readings.window_all(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(8))).process(Sequence()),
    }
