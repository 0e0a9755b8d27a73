"""A program that counts MQTT messages by key and writes the counts to files; it can kill itself at a step.

    python mqtt_counting.py PORT TOPIC STATE_ROOT OUT IDS [STEP NUMBER]

Messages are "key number". IDS: "ids" to read exactly once, by the user property "id".
"""

from __future__ import annotations

import sys
from typing import Any

import forkpoint as fp
from deaths import die_at
from forkpoint.checkpoint.history import History
from forkpoint.connectors.queues.enumerator import QueueEnumerator
from forkpoint_mqtt.consumer import SessionConnection
from forkpoint_mqtt.source import MqttSource

STEPS = {
    "plan": (QueueEnumerator, "plan"),
    "manifest": (History, "commit"),
    "acknowledge": (SessionConnection, "acknowledge"),
}


class Count(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, message: str, ctx: fp.KeyedProcessFunction.Context) -> Any:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield f"{message} {seen}"


def session(topic: str) -> str:
    """The client id for a topic."""
    return topic.replace("/", "-")


def build(env: fp.StreamExecutionEnvironment, source: MqttSource[str], out: str) -> None:
    words = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "words").uid("words")
    counts = words.key_by(lambda message: message.split()[0], str).process(Count(), str).uid("counts")
    counts.sink_to(fp.FileSink.text(out)).uid("out")


if __name__ == "__main__":
    port, topic, root, out, ids, *death = sys.argv[1:]
    if death:
        die_at(STEPS, death[0], int(death[1]))
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(root).set_parallelism(2).set_max_epoch_rows(100).enable_checkpointing(10)
    id_property = "id" if ids == "ids" else None
    source = MqttSource(
        "127.0.0.1",
        topic,
        fp.SimpleStringSchema(),
        port=int(port),
        id_property=id_property,
        client_id=session(topic),
    )
    build(env, source, out)
    env.execute("counting")
