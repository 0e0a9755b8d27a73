"""The jobs of FlinkFunctions.java: program.py JOB EVENTS."""

import sys
from datetime import timedelta
from typing import Any, NamedTuple

import forkpoint as fp


class Event(NamedTuple):
    key: int
    amount: int
    at: int


class Totals(NamedTuple):
    events: int
    amounts: int


class Total(NamedTuple):
    key: int
    events: int
    amounts: int


def event(number: int) -> Event:
    return Event(number * 7919 % 100_000, (number * 2654435761 >> 7) % 1000, number // 100)


class CountAndSum(fp.KeyedProcessFunction):
    totals = fp.ValueStateDescriptor("totals", Totals)

    def process_element(self, event: Event, ctx: fp.KeyedProcessFunction.Context) -> Any:
        events, amounts = self.totals.value() or (0, 0)
        now = Totals(events + 1, amounts + event.amount)
        self.totals.update(now)
        yield Total(event.key, now.events, now.amounts)


def add(event: Event, totals: Totals | None) -> tuple[Total, Totals]:
    events, amounts = totals or (0, 0)
    now = Totals(events + 1, amounts + event.amount)
    return Total(event.key, now.events, now.amounts), now


def results(events: fp.DataStream[Event], job: str) -> fp.DataStream[Any]:
    if job == "windows":
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda event, _: event.at)
        keyed = events.assign_timestamps_and_watermarks(strategy).uid("times").key_by("key")
        windows = keyed.window(fp.TumblingEventTimeWindows.of(timedelta(seconds=60)))
        return windows.agg(events=fp.Count(), amounts=fp.Sum("amount")).uid("totals")
    keyed = events.key_by("key")
    return (keyed.process(CountAndSum(), Total) if job == "process" else keyed.map_with_state(add, Totals, Total)).uid("totals")


if __name__ == "__main__":
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_max_epoch_rows(2_500_000)
    source = fp.NumberSequenceSource(0, int(sys.argv[2]) - 1)
    numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    results(numbers.map(event), sys.argv[1]).sink_to(fp.DiscardSink()).uid("results")
    env.execute("functions")
