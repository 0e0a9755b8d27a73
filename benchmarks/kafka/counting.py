"""forkpoint's side: reads Kafka, counts by key, writes Kafka.

PYTHONPATH=tests/kafka python benchmarks/kafka/counting.py BROKERS FROM TO STATE_ROOT [--engine spark|local]
    [--counted-by function|agg] [--parallelism N] [--interval-ms MS] [--epoch-rows N]
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from json_topics import json_sink, json_source

import forkpoint as fp
from forkpoint.api.launch import Launch


class Event(NamedTuple):
    user: int
    number: int
    sent_us: int
    note: str


class Counted(NamedTuple):
    user: int
    number: int
    sent_us: int
    count: int  # type: ignore[assignment]


class Count(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, event: Event, ctx: fp.KeyedProcessFunction.Context) -> Any:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield Counted(event.user, event.number, event.sent_us, seen)


def by_function(users: fp.KeyedStream[Event, int]) -> fp.DataStream[Any]:
    return users.process(Count(), Counted)


def by_agg(users: fp.KeyedStream[Event, int]) -> fp.DataStream[Any]:
    """The same records, computed over columns."""
    return users.agg(number=fp.Last("number"), sent_us=fp.Last("sent_us"), count=fp.Count())


COUNTS = {"function": by_function, "agg": by_agg}


def counting(env: fp.StreamExecutionEnvironment, brokers: str, topic: str, to: str, counted_by: str) -> None:
    source = json_source(brokers, topic, Event).build()
    events = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "events").uid("events")
    counts = COUNTS[counted_by](events.key_by("user")).uid("counts")
    counts.sink_to(json_sink(brokers, to, Counted)).uid("kafka")


def main() -> None:
    arguments = argparse.ArgumentParser()
    for name in ("brokers", "source", "to", "state_root"):
        arguments.add_argument(name)
    arguments.add_argument("--engine", default="spark")
    arguments.add_argument("--counted-by", choices=COUNTS, default="function")
    arguments.add_argument("--parallelism", type=int, default=4)
    arguments.add_argument("--interval-ms", type=int, default=1000)
    arguments.add_argument("--epoch-rows", type=int, default=500_000)
    given = arguments.parse_args()
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(given.state_root).set_parallelism(given.parallelism).enable_checkpointing(given.interval_ms)
    env.set_max_epoch_rows(given.epoch_rows)
    counting(env, given.brokers, given.source, given.to, given.counted_by)
    env.launch = Launch(options={"engine": given.engine})
    env.execute("counting")


if __name__ == "__main__":
    main()
