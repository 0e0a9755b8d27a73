"""What RabbitMQ's tests share: jobs in this process, and a driver's loop without a driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from queue_counting import build, config

import forkpoint as fp
from connectors.connector_reading import json_round_trip, read_all
from forkpoint.api.execution import Job, prepare
from forkpoint.api.launch import Launch
from forkpoint.connectors.base import SourceContext, SplitRange
from forkpoint.connectors.formats.base import DeserializationSchema
from forkpoint.connectors.rabbitmq.source import RabbitMQSource
from forkpoint.graph.options import RestartStrategy
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


class InBackground:
    """A running job, cancelled at the end."""

    def __init__(self, prepared: Job) -> None:
        self.driver = prepared.driver
        self.result: Any = None
        self._thread = threading.Thread(target=self._run, args=[prepared], daemon=True)
        self._thread.start()

    def _run(self, prepared: Job) -> None:
        try:
            self.result = prepared.begin()()
        except Exception as error:
            self.result = error

    def wait_for(self, condition: Callable[[], object]) -> None:
        while not condition():
            assert self._thread.is_alive(), self.result
            time.sleep(0.05)

    def end(self) -> Any:
        self._thread.join()
        return self.result

    def __enter__(self) -> InBackground:
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.cancel()
        self._thread.join()


def source(rabbitmq: RabbitMQ, queue: str, root: Path, *, ids: bool = True, **options: Any) -> RabbitMQSource[str]:
    """A source in a job."""
    values = {
        name: options.pop(name)
        for name in ("prefetch_count", "requested_heartbeat", "connection_timeout")
        if name in options
    }
    made = RabbitMQSource(config(rabbitmq.port, **values), queue, ids, Text(), **options)
    return made.for_job(SourceContext("words", "job", str(root)))


class Loop:
    """Plans, reads and commits, as a job does. ``read``: what was read by committed epochs."""

    def __init__(self, source: RabbitMQSource[str], position: Any = None) -> None:
        self.source = source
        self.enumerator = source.create_enumerator(json_round_trip(position))
        self.read: list[str] = []
        self.position = position

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: object) -> None:
        self.enumerator.close()

    def planned(self, max_rows: int = 1000) -> list[SplitRange]:
        """The next epoch that has anything to read."""
        while True:
            ranges = self.enumerator.plan(max_rows)
            if any(r.rows for r in ranges):
                return ranges
            time.sleep(0.002)

    def epoch(self, ranges: list[SplitRange] | None = None, max_rows: int = 1000, *, commit: bool = True) -> Any:
        """One epoch; returns its position. Without ``commit`` it is committed, and nobody is told."""
        ranges = self.planned(max_rows) if ranges is None else ranges
        for values in read_all(self.source, ranges).values():
            self.read += values
        self.position = json_round_trip(self.enumerator.position)
        if commit:
            self.enumerator.committed(self.position)
        return self.position

    def until(self, count: int) -> None:
        while len(self.read) < count:
            self.epoch()

    def until_it_fails(self) -> None:
        while True:
            self.enumerator.plan(1000)
            time.sleep(0.002)
