"""State with a time to live that doesn't pass during the run."""

from parity_inputs import readings
from pyflink.common import Time, Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig, ValueStateDescriptor

INPUTS = {"readings": readings(seed=84, count=50)}


class Counts(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        ttl = (
            StateTtlConfig.new_builder(Time.days(1))
            .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)
            .set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
            .build()
        )
        count = ValueStateDescriptor("count", Types.LONG())
        values = ListStateDescriptor("values", Types.LONG())
        last = MapStateDescriptor("last", Types.LONG(), Types.LONG())
        for descriptor in (count, values, last):
            descriptor.enable_time_to_live(ttl)
        self.count = runtime_context.get_state(count)
        self.values = runtime_context.get_list_state(values)
        self.last = runtime_context.get_map_state(last)

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        self.values.add(value[3])
        self.last.put(value[3] % 3, value[2])
        yield value[0], self.count.value(), list(self.values.get()), sorted(self.last.items())


def program(readings):
    return readings.key_by(lambda r: r[0]).process(Counts())
