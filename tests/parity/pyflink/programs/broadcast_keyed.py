"""Broadcast state beside state and timers of the key, with limits that change and go on the way."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import KeyedBroadcastProcessFunction, OutputTag, RuntimeContext
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor

INPUTS = {
    "limits": readings(seed=73, count=6, step_ms=10, disorder_ms=0, silence_ms=0),
    "readings": readings(seed=74, count=30, keys="abcx", bound_ms=None, after=("limits",)),
    "changes": readings(seed=75, count=6, step_ms=10, disorder_ms=0, silence_ms=0, after=("readings",)),
    "more": readings(seed=76, count=30, keys="abcx", bound_ms=None, after=("changes",)),
}
LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.LONG())
NONE = OutputTag("none", Types.LONG())


class Above(KeyedBroadcastProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.above = runtime_context.get_state(ValueStateDescriptor("above", Types.LONG()))

    def process_element(self, value, ctx):
        limit = ctx.get_broadcast_state(LIMITS).get(value[0])
        if limit is None:
            yield NONE, value[2]
        elif value[3] > limit:
            self.above.update((self.above.value() or 0) + 1)
            yield ctx.get_current_key(), value[2], value[3], limit, self.above.value()
        ctx.timer_service().register_event_time_timer(2_000_000)

    def process_broadcast_element(self, value, ctx):
        limits = ctx.get_broadcast_state(LIMITS)
        if value[3] % 4 == 0 and limits.contains(value[0]):
            limits.remove(value[0])
        else:
            limits.put(value[0], value[3])

    def on_timer(self, timestamp, ctx):
        limits = ctx.get_broadcast_state(LIMITS)
        yield ctx.get_current_key(), "end", self.above.value(), sorted(limits.items())


def program(limits, readings, changes, more):
    keyed = readings.union(more).key_by(lambda r: r[0], Types.STRING())
    found = keyed.connect(limits.union(changes).broadcast(LIMITS)).process(Above())
    return {"above": found, "none": found.get_side_output(NONE)}
