from pyflink.common.typeinfo import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor


class Total(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.INT()))
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        self.seen.inc()
        self.total.update((self.total.value() or 0) + value[1])
        yield value[0], self.total.value()
