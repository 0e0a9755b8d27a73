"""A program that reads Kafka, counts per key, and writes Kafka.

python counting.py BROKERS FROM TO STATE_ROOT [UNTIL_NUMBER_OF_RECORDS]
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from json_topics import json_sink, json_source

import forkpoint as fp


class Event(NamedTuple):
    user: int
    number: int


class Counted(NamedTuple):
    user: int
    number: int
    count: int


class Count(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, event: Event, ctx: fp.KeyedProcessFunction.Context) -> Any:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield Counted(event.user, event.number, seen)


def counting(env: fp.StreamExecutionEnvironment, brokers: str, topic: str, to: str) -> None:
    source = json_source(brokers, topic, Event).set_group_id(f"reads-{topic}").build()
    events = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "events").uid("events")
    counts = events.key_by(lambda event: event.user, int).process(Count(), Counted).uid("counts")
    counts.sink_to(json_sink(brokers, to, Counted)).uid("kafka")


if __name__ == "__main__":
    brokers, topic, to, root = sys.argv[1:]
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(root).set_parallelism(2).set_max_epoch_rows(500).enable_checkpointing(50)
    counting(env, brokers, topic, to)
    env.execute("counting")
