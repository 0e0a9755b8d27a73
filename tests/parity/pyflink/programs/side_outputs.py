"""Side outputs of process functions with and without keys, from elements and from timers, and processed further."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, OutputTag, ProcessFunction

INPUTS = {"readings": readings(seed=46)}
ELEMENT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()])
NEGATIVE = OutputTag("negative", ELEMENT)
LARGE = OutputTag("large", Types.TUPLE([Types.STRING(), Types.LONG()]))
FIRED = OutputTag("fired", Types.LONG())


class Split(ProcessFunction):
    def process_element(self, value, ctx):
        if value[3] < 0:
            yield NEGATIVE, value
        else:
            yield value
        if value[3] > 80:
            yield LARGE, (value[0], value[3])


class Timers(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 500)
        yield value[0], value[2]

    def on_timer(self, timestamp, ctx):
        yield FIRED, timestamp


def program(readings):
    split = readings.process(Split(), ELEMENT)
    timers = split.get_side_output(NEGATIVE).key_by(lambda v: v[0]).process(Timers())
    return {
        "main": split,
        "negative": timers,
        "fired": timers.get_side_output(FIRED),
        "large": split.get_side_output(LARGE).map(lambda v: (v[0], v[1] + 1)),
    }
