"""Broadcast state without keys: limits that are all there before the first element, but are of later times than some."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import BroadcastProcessFunction
from pyflink.datastream.state import MapStateDescriptor

INPUTS = {
    "limits": readings(seed=71, count=7, step_ms=10, disorder_ms=0, silence_ms=0),
    "readings": readings(seed=72, count=50, keys="abcx", after=("limits",)),
}
DEPARTURE = (
    "Flink's broadcast elements take effect when they arrive, so what elements see depends on how far ahead the broadcast "
    "stream is read. Here they take effect at their own time, when the watermark of the other stream reaches it"
)
PARALLELISM = 1  # each subtask emits something for each limit
LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.LONG())


class Above(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        limits = ctx.get_broadcast_state(LIMITS)
        if value[0] not in limits:
            yield value[0], "no limit", value[2]
        elif value[3] > limits.get(value[0]):
            yield value[0], value[2], value[3], limits[value[0]], ctx.timestamp()

    def process_broadcast_element(self, value, ctx):
        limits = ctx.get_broadcast_state(LIMITS)
        before = limits.get(value[0])
        limits.put(value[0], value[3])
        yield "limit", value[0], before, value[3], sorted(limits.items())


def program(limits, readings):
    return readings.connect(limits.broadcast(LIMITS)).process(Above())
