"""What RabbitMQ's tests share: jobs in this process, and sources."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import forkpoint as fp
from background import InBackground
from forkpoint.api.execution import Job, prepare
from forkpoint.api.launch import Launch
from forkpoint.contract.format import DeserializationSchema
from forkpoint.contract.source import SourceContext
from forkpoint.graph.options import RestartStrategy
from forkpoint_rabbitmq.source import RabbitMQSource
from queue_counting import build, config
from servers.rabbitmq_server import RabbitMQ


class Text(DeserializationSchema[str]):
    """UTF-8; "bad" is no good text."""

    def deserialize(self, message: bytes) -> str:
        if message == b"bad":
            raise ValueError("bad text")
        return message.decode()


def job(root: Path, rabbitmq: RabbitMQ, queue: str, to: str, **values: Any) -> Job:
    """Counts what is in a queue; see queue_counting.py. ``values``: of the connection."""
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(2).set_max_epoch_rows(100).enable_checkpointing(10)
    env.options = replace(env.options, restart=RestartStrategy.none())
    build(env, config(rabbitmq.port, **values), queue, to, True)
    env.launch = Launch(options={"engine": "local"})
    return prepare(env, "counting")


CANCEL_SECONDS = 60.0  # else a test that was ended for taking too long would hang here


class CancelledInBackground(InBackground):
    """A running job, cancelled at the end."""

    def wait_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            assert self.alive, self.result
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.cancel()
        self._thread.join(CANCEL_SECONDS)


def source(rabbitmq: RabbitMQ, queue: str, root: Path, *, ids: bool = True, **options: Any) -> RabbitMQSource[str]:
    """A source in a job."""
    values = {
        name: options.pop(name) for name in ("prefetch_count", "requested_heartbeat", "connection_timeout") if name in options
    }
    made = RabbitMQSource(config(rabbitmq.port, **values), queue, ids, Text(), **options)
    return made.for_job(SourceContext("words", "job", str(root)))
