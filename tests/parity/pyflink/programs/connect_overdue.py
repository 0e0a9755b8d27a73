"""Which orders were not paid within four seconds: a timer that the payment takes back, whichever of the two comes first."""

from parity_inputs import readings
from pyflink.common import Types
from pyflink.datastream import KeyedCoProcessFunction, OutputTag, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor

INPUTS = {
    "orders": readings(seed=67, count=60, disorder_ms=1_000),
    "payments": readings(seed=67, count=60, disorder_ms=1_500, step_ms=720),
}
UNPAID = OutputTag("unpaid", Types.LONG())


class Overdue(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.due = runtime_context.get_state(ValueStateDescriptor("due", Types.LONG()))
        self.paid = runtime_context.get_state(ValueStateDescriptor("paid", Types.LONG()))

    def process_element1(self, value, ctx):
        due = ctx.timestamp() + 4_000
        if self.paid.value() is None or self.paid.value() > due:
            ctx.timer_service().register_event_time_timer(due)
            self.due.update(due)

    def process_element2(self, value, ctx):
        self.paid.update(ctx.timestamp())
        if self.due.value() is not None and ctx.timestamp() <= self.due.value():
            ctx.timer_service().delete_event_time_timer(self.due.value())

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp
        yield UNPAID, timestamp


def program(orders, payments):
    connected = orders.connect(payments.filter(lambda p: p[3] % 3))
    unpaid = connected.key_by(lambda o: o[2], lambda p: p[2], Types.LONG()).process(Overdue())
    return {"unpaid": unpaid, "side": unpaid.get_side_output(UNPAID)}
