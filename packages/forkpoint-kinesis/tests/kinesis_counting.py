"""A program that reads a stream of Kinesis, counts per key, and writes another one; it can kill itself at a step of putting.

    python kinesis_counting.py ENDPOINT FROM TO STATE_ROOT [STEP NUMBER]

STEP: see ``STEPS``; it dies before (or with a trailing "+", after) it the NUMBER-th time.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import forkpoint as fp
from deaths import die_at
from forkpoint_kinesis.ahead import ShardAhead
from forkpoint_kinesis.committer import PutCommitter
from forkpoint_kinesis.sink import StreamTarget
from kinesis_jobs import FAST

STEPS = {"take": (ShardAhead, "take"), "commit": (PutCommitter, "commit"), "put": (StreamTarget, "put")}


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


def counting(env: fp.StreamExecutionEnvironment, properties: dict[str, str], stream: str, to: str, ids: bool = False) -> None:
    source = (
        fp.KinesisSource.builder()
        .set_stream_name(stream)
        .set_deserialization_schema(fp.JsonRowDeserializationSchema(Event))
        .set_initial_position("TRIM_HORIZON")
        .set_properties({**FAST, **properties})
        .build()
    )
    sink = (
        fp.KinesisSink.builder()
        .set_stream_name(to)
        .set_serialization_schema(fp.JsonRowSerializationSchema(Counted))
        .set_partition_key_generator(lambda counted: str(counted.user))
        .set_kinesis_client_properties(properties)
        .set_record_ids(ids)
        .build()
    )
    events = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "events").uid("events")
    events.key_by(lambda event: event.user, int).process(Count(), Counted).uid("counts").sink_to(sink).uid("kinesis")


if __name__ == "__main__":
    endpoint, stream, to, root, *death = sys.argv[1:]
    if death:
        die_at(STEPS, death[0], int(death[1]))
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(root).set_parallelism(2).set_max_epoch_rows(10).enable_checkpointing(1)
    properties = {
        "aws.region": "eu-west-1",
        "aws.endpoint": endpoint,
        "aws.credentials.provider.basic.accesskeyid": "AKIATEST",
        "aws.credentials.provider.basic.secretkey": "secret",
    }
    counting(env, properties, stream, to)
    env.execute("counting")
