"""Elements of both streams held in state until the five seconds they belong to are over, then emitted together."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import KeyedCoProcessFunction, RuntimeContext
from pyflink.datastream.state import MapStateDescriptor

INPUTS = {
    "readings": readings(seed=65, count=60, disorder_ms=1_500),
    "others": readings(seed=66, count=50, disorder_ms=1_500, keys="bcd"),
}


class Together(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        values = Types.LIST(Types.LONG())
        self.first = runtime_context.get_map_state(MapStateDescriptor("first", Types.LONG(), values))
        self.second = runtime_context.get_map_state(MapStateDescriptor("second", Types.LONG(), values))

    def process_element1(self, value, ctx):
        self.hold(self.first, value, ctx)

    def process_element2(self, value, ctx):
        self.hold(self.second, value, ctx)

    def hold(self, state, value, ctx):
        end = ctx.timestamp() - ctx.timestamp() % 5_000 + 4_999
        state.put(end, [*(state.get(end) or []), value[2]])
        ctx.timer_service().register_event_time_timer(end)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, self.first.get(timestamp), self.second.get(timestamp)
        self.first.remove(timestamp)
        self.second.remove(timestamp)


def program(readings, others):
    keyed = readings.key_by(lambda r: r[0], Types.STRING())
    return keyed.connect(others.key_by(lambda o: o[0], Types.STRING())).process(Together())
