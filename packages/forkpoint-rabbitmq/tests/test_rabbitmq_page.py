"""The program of docs/rabbitmq.md, and one with PyFlink's names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import forkpoint as fp
import forkpoint.pyflink
from examples.doc_blocks import ROOT, blocks
from forkpoint.api.execution import prepare
from forkpoint.api.launch import Launch
from queue_jobs import CancelledInBackground
from servers.rabbitmq_server import RabbitMQ

(PROGRAM,) = (block for block in blocks(ROOT / "docs" / "rabbitmq.md") if block.info == "python")

RENAMED = """
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSink, RMQSource

builder = RMQConnectionConfig.Builder().set_host("127.0.0.1").set_port(port).set_virtual_host("/")
config = builder.set_user_name("guest").set_password("guest").set_prefetch_count(100).build()
env = StreamExecutionEnvironment.get_execution_environment()
stream = env.add_source(RMQSource(config, queue, True, SimpleStringSchema())).uid("source")
stream.add_sink(RMQSink(config, to, SimpleStringSchema())).uid("sink")
"""


def run(env: Any, root: Path, rabbitmq: RabbitMQ, queue: str, count: int) -> list[str]:
    """What a job sends to a queue."""
    env.set_state_root(str(root))
    env.launch = Launch(options={"engine": "local"})
    with CancelledInBackground(prepare(env, "page")) as running:
        running.wait_until(lambda: rabbitmq.depth(queue) >= count)
    return rabbitmq.values(queue)


def test_the_program(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(PROGRAM.text, PROGRAM.name, "exec", dont_inherit=True), names)
    rabbitmq.create_queue("orders")
    rabbitmq.create_queue("totals")
    orders = [{"customer": name, "amount": amount} for name, amount in [("ann", 1.5), ("bob", 2.0), ("ann", 3.0)]]
    rabbitmq.publish("orders", map(json.dumps, orders))
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    names["build"](env, f"amqp://guest:guest@127.0.0.1:{rabbitmq.port}/")
    totals = {found["customer"]: found["total"] for found in map(json.loads, run(env, tmp_path, rabbitmq, "totals", 2))}
    assert totals == {"ann": 4.5, "bob": 2.0}


def test_pyflinks_names(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    forkpoint.pyflink.install()
    queue, to = rabbitmq.create_queue(), rabbitmq.create_queue()
    rabbitmq.publish(queue, ["one", "two"])
    names: dict[str, Any] = {"port": rabbitmq.port, "queue": queue, "to": to}
    exec(RENAMED, names)
    assert run(names["env"], tmp_path, rabbitmq, to, 2) == ["one", "two"]
