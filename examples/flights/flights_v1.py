"""Version 1: counts departures, and raises an alarm when an airline at an airport runs late.

    forkpoint run -d examples/flights/flights_v1.py STREAM OUTPUT

STREAM is the directory that prepare.py writes, OUTPUT one for the results: OUTPUT/counts and OUTPUT/alarms, Parquet.
check.py has the exact definition. With --bounded it ends with the files that exist at its start.
"""

import argparse
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

import forkpoint as fp

WINDOW = 20  # departures
LATE_MINUTES = 60
PATIENCE_MS = 6 * 3600 * 1000


class Flight(NamedTuple):
    time: int  # scheduled departure, ms
    carrier: str
    origin: str
    dep_time: int | None  # None: cancelled
    dep_delay: int | None  # minutes


class Count(NamedTuple):
    origin: str
    carrier: str
    departures: int


class Alarm(NamedTuple):
    kind: str  # "alarm" or "escalation"
    carrier: str
    origin: str
    time: int  # ms


class CountDepartures(fp.KeyedProcessFunction):
    """One number for each (origin, carrier)."""

    departures = fp.ValueStateDescriptor("departures", int, default_value=0)

    def process_element(self, flight: Flight, ctx: fp.KeyedProcessFunction.Context) -> Iterator[Count]:
        count = self.departures.value() + 1
        self.departures.update(count)
        yield Count(flight.origin, flight.carrier, count)


class LatenessAlarm(fp.KeyedProcessFunction):
    """For each (carrier, origin): its last delays, whether it runs late, and when an alarm is to be escalated."""

    recent = fp.ValueStateDescriptor("recent", list[int], default_value=[])
    late = fp.ValueStateDescriptor("late", bool, default_value=False)
    due = fp.ValueStateDescriptor("due", int)

    def process_element(self, flight: Flight, ctx: fp.KeyedProcessFunction.Context) -> Iterator[Alarm]:
        assert flight.dep_delay is not None  # the others are left out
        recent = [*self.recent.value(), flight.dep_delay][-WINDOW:]
        late = len(recent) == WINDOW and sum(recent) > WINDOW * LATE_MINUTES
        timers = ctx.timer_service()
        if late and not self.late.value():
            yield Alarm("alarm", flight.carrier, flight.origin, flight.time)
            timers.register_event_time_timer(flight.time + PATIENCE_MS)
            self.due.update(flight.time + PATIENCE_MS)
        elif not late:
            # A departure after the due time is too late to withdraw the escalation, though it may be processed first.
            due = self.due.value()
            if due is not None and flight.time <= due:
                timers.delete_event_time_timer(due)
            self.due.clear()
        self.recent.update(recent)
        self.late.update(late)

    def on_timer(self, timestamp: int, ctx: fp.KeyedProcessFunction.OnTimerContext) -> Iterator[Alarm]:
        carrier, origin = ctx.get_current_key()
        yield Alarm("escalation", carrier, origin, timestamp)


def build(env: fp.StreamExecutionEnvironment, stream: str, output: str, *, bounded: bool = False) -> None:
    env.enable_checkpointing(timedelta(milliseconds=500))
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda flight, _: flight.time)
    source = fp.FileSource.parquet(stream, Flight, bounded=bounded)
    flights = env.from_source(source, strategy, "flights").uid("flights")
    departures = flights.filter(lambda flight: flight.dep_time is not None)
    (
        departures.key_by(lambda flight: (flight.origin, flight.carrier))
        .process(CountDepartures())
        .uid("counts")
        .sink_to(fp.FileSink.parquet(f"{output}/counts"))
        .uid("counts-out")
    )
    (
        departures.key_by(lambda flight: (flight.carrier, flight.origin))
        .process(LatenessAlarm())
        .uid("lateness")
        .sink_to(fp.FileSink.parquet(f"{output}/alarms"))
        .uid("alarms-out")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stream")
    parser.add_argument("output")
    parser.add_argument("--bounded", action="store_true")
    arguments = parser.parse_args()
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    build(env, arguments.stream, arguments.output, bounded=arguments.bounded)
    env.execute("flights")


if __name__ == "__main__":
    main()
