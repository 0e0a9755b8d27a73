"""A program that counts the messages of a queue by key and sends each count to another; it can kill itself at a step.

    python queue_counting.py PORT FROM TO STATE_ROOT IDS [STEP NUMBER]

Messages are "key number". IDS: "ids" to read exactly once, by correlation id.
"""

from __future__ import annotations

import sys
from typing import Any

import forkpoint as fp
from deaths import die_at
from forkpoint.checkpoint.history import History
from forkpoint.connectors.queues.enumerator import QueueEnumerator
from forkpoint.contract.format import SerializationSchema
from forkpoint_rabbitmq.config import RabbitMQConnectionConfig
from forkpoint_rabbitmq.consumer import QueueConnection
from forkpoint_rabbitmq.publisher import ConfirmedPublisher
from forkpoint_rabbitmq.sink import RabbitMQSink
from forkpoint_rabbitmq.source import RabbitMQSource

STEPS = {
    "plan": (QueueEnumerator, "plan"),
    "manifest": (History, "commit"),
    "acknowledge": (QueueConnection, "acknowledge"),
    "connect": (ConfirmedPublisher, "_on_channel"),
    "publish": (ConfirmedPublisher, "publish"),
    "confirm": (ConfirmedPublisher, "_on_confirm"),
}


class Count(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, message: str, ctx: fp.KeyedProcessFunction.Context) -> Any:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield f"{message} {seen}"


class Text(SerializationSchema[str]):
    def serialize(self, element: str) -> bytes:
        return element.encode()


def config(port: int, **values: Any) -> RabbitMQConnectionConfig:
    return RabbitMQConnectionConfig("127.0.0.1", port, **values)


def build(env: fp.StreamExecutionEnvironment, config: RabbitMQConnectionConfig, queue: str, to: str, ids: bool) -> None:
    source = RabbitMQSource(config, queue, ids, fp.SimpleStringSchema())
    words = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "words").uid("words")
    counts = words.key_by(lambda message: message.split()[0], str).process(Count(), str).uid("counts")
    counts.sink_to(RabbitMQSink(config, to, Text())).uid("out")


if __name__ == "__main__":
    port, queue, to, root, ids, *death = sys.argv[1:]
    if death:
        die_at(STEPS, death[0], int(death[1]))
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(root).set_parallelism(2).set_max_epoch_rows(100).enable_checkpointing(10)
    build(env, config(int(port)), queue, to, ids == "ids")
    env.execute("counting")
