"""The jobs of FlinkLargeState.java: program.py JOB EVENTS KEYS PARALLELISM ENGINE STORE DIRECTORY ROWS MEMORY_MIB.

Prints the time in ms and the number of processed events after each epoch.
"""

import sys
import time
from typing import Any, NamedTuple

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.driver.observe.events import EpochCommitted, Event

JOB, EVENTS, KEYS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class Payment(NamedTuple):
    key: int
    amount: int


class Totals(NamedTuple):
    events: int
    amounts: int


class Total(NamedTuple):
    key: int
    events: int
    amounts: int


def uniform(number: int) -> Payment:
    a = (number * 1103515245 + 12345) % 2147483648
    b = (a ^ (a >> 15)) * 1597334677 % 2147483648
    return Payment((b ^ (b >> 13)) % KEYS, number % 1000)


def zipf(number: int) -> Payment:
    """Each octave of keys is as likely as another: the n-th key has a share of about 1/n."""
    a = (number * 1103515245 + 12345) % 2147483648
    b = (a ^ (a >> 15)) * 1597334677 % 2147483648
    return Payment((b ^ (b >> 13)) >> (5 + number % 26), number % 1000)


class CountAndSum(fp.KeyedProcessFunction):
    totals = fp.ValueStateDescriptor("totals", Totals)

    def process_element(self, payment: Payment, ctx: fp.KeyedProcessFunction.Context) -> Any:
        events, amounts = self.totals.value() or (0, 0)
        now = Totals(events + 1, amounts + payment.amount)
        self.totals.update(now)
        yield Total(payment.key, now.events, now.amounts)


class Progress:
    def __init__(self) -> None:
        self.done = 0

    def on_event(self, event: Event) -> None:
        if isinstance(event, EpochCommitted):
            self.done += event.records_in.get("totals", 0)
            print(int(time.time() * 1000), self.done, flush=True)


if __name__ == "__main__":
    parallelism, engine, store, directory, rows, memory_mib = sys.argv[4:]
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_max_epoch_rows(int(rows))
    env.set_state_root(f"{directory}/state").set_parallelism(int(parallelism))
    env.launch = Launch(
        options={"engine": engine, "state_backend": store, "memory_bytes": int(memory_mib) << 20 or None}, listeners=[Progress()]
    )
    source = fp.NumberSequenceSource(0, EVENTS - 1)
    numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    events = numbers.map(uniform if JOB == "uniform" else zipf)
    events.key_by("key").process(CountAndSum(), Total).uid("totals").sink_to(fp.DiscardSink()).uid("results")
    env.execute("large-state")
