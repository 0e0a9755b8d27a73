"""The RabbitMQ source against a real broker: what is read, acknowledged, delivered again and refused."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from connectors.connector_reading import side_elements
from connectors.queue_loop import Loop
from forkpoint.connectors.queues import receiver
from forkpoint.errors import ConfigError, JobFailed, RecordParseError, RestoreRefused, SystemUnavailable
from forkpoint_rabbitmq.consumer import QueueConnection
from forkpoint_rabbitmq.source import RabbitMQSource
from queue_counting import config
from queue_jobs import source
from servers.rabbitmq_server import RabbitMQ


def texts(start: int, stop: int) -> list[str]:
    return [f"m{n}" for n in range(start, stop)]


def empty(rabbitmq: RabbitMQ, queue: str) -> bool:
    """Whether a queue has no message after all consumers have gone, not even one that was not acknowledged."""
    return rabbitmq.values(queue) == []


def test_messages_are_read_in_order_and_acknowledged(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue()
    rabbitmq.publish(queue, texts(0, 1000))
    with Loop(source(rabbitmq, queue, tmp_path)) as loop:
        loop.until(1000)
        assert loop.read == texts(0, 1000)
    assert empty(rabbitmq, queue)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))  # what was stored is removed


def test_nothing_is_acknowledged_before_the_commit(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue()
    rabbitmq.publish(queue, texts(0, 100))
    with Loop(source(rabbitmq, queue, tmp_path)) as loop:
        loop.epoch(commit=False)
        time.sleep(0.2)
    assert rabbitmq.values(queue) == texts(0, 100)


def test_the_number_of_unacknowledged_messages_has_a_bound(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue()
    rabbitmq.publish(queue, texts(0, 100))
    with Loop(source(rabbitmq, queue, tmp_path, prefetch_count=30)) as loop:
        while rabbitmq.depth(queue) > 70:
            loop.enumerator.plan(0)
        time.sleep(0.2)
        assert rabbitmq.depth(queue) == 70
        loop.until(100)
        assert loop.read == texts(0, 100)


@pytest.mark.parametrize("id_property", ["correlation_id", "message_id"])
def test_what_was_committed_but_not_acknowledged_is_not_read_again(rabbitmq: RabbitMQ, tmp_path: Path, id_property: str) -> None:
    queue = rabbitmq.create_queue()
    rabbitmq.publish(queue, texts(0, 300))
    options: Any = {"ids": False, "id_property": id_property} if id_property == "message_id" else {}
    with Loop(source(rabbitmq, queue, tmp_path, **options)) as loop:
        position = loop.epoch(loop.planned(120), commit=False)
        first = loop.read
    with Loop(source(rabbitmq, queue, tmp_path, **options), position) as loop:
        loop.until(300 - len(first))
        assert first + loop.read == texts(0, 300)
    assert empty(rabbitmq, queue)


def test_without_ids_what_was_not_acknowledged_is_read_again(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue()
    rabbitmq.publish(queue, texts(0, 50), ids=False)
    with Loop(source(rabbitmq, queue, tmp_path, ids=False)) as loop:
        loop.read = []
        while len(loop.read) < 50:
            position = loop.epoch(commit=False)
    with Loop(source(rabbitmq, queue, tmp_path, ids=False), position) as loop:
        loop.until(50)
        assert loop.read == texts(0, 50)
    assert empty(rabbitmq, queue)


def test_a_producer_that_repeats_itself(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue()
    rabbitmq.publish(queue, [*texts(0, 50), *texts(30, 80)])
    with Loop(source(rabbitmq, queue, tmp_path)) as loop:
        loop.until(80)
        rabbitmq.publish(queue, [*texts(70, 90)])
        loop.until(90)
        assert loop.read == texts(0, 90)
    assert empty(rabbitmq, queue)


def test_the_position_stays_small(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue()
    with Loop(source(rabbitmq, queue, tmp_path, prefetch_count=100)) as loop:
        for n in range(10):
            rabbitmq.publish(queue, texts(100 * n, 100 * n + 100))
            loop.until(100 * n + 100)
            ids = 4 / 3 * 12
            assert len(loop.position["unacknowledged"]) <= 100 * ids
            assert len(loop.position["acknowledged"]) <= 100 * ids


# -- messages that are refused


def test_a_message_without_an_id_is_refused(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue()
    rabbitmq.publish(queue, ["x"], ids=False)
    with (
        Loop(source(rabbitmq, queue, tmp_path)) as loop,
        pytest.raises(JobFailed, match="has no correlation_id; have pro"),
    ):
        loop.until_it_fails()
    assert not empty(rabbitmq, queue)


def test_messages_that_cannot_be_read_fail_or_are_skipped(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue()
    rabbitmq.publish(queue, ["a", "bad", "b"])
    with (
        Loop(source(rabbitmq, queue, tmp_path)) as loop,
        pytest.raises(RecordParseError, match=r"cannot read a message"),
    ):
        loop.until(2)
    assert len(rabbitmq.on_channel(lambda c: [c.basic_get(queue) for _ in range(3)])) == 3
    with Loop(source(rabbitmq, queue, tmp_path, on_parse_error="skip")) as loop:
        loop.until(2)
        assert loop.read == ["a", "b"]
    assert empty(rabbitmq, queue)


def test_messages_that_cannot_be_read_become_dead_letters(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue()
    rabbitmq.publish(queue, ["a", "bad", "b"])
    dead = source(rabbitmq, queue, tmp_path, on_parse_error=fp.OutputTag("dead", fp.DeadLetter))
    with Loop(dead) as loop:
        letters: list[fp.DeadLetter] = []
        while len(loop.read) < 2:
            planned = loop.planned()
            letters += side_elements(dead, planned)
            loop.epoch(planned)
    (letter,) = letters
    assert (letter.place, letter.data) == ({"routing_key": queue, "message": "1"}, b"bad")
    assert loop.read == ["a", "b"]
    assert empty(rabbitmq, queue)


# -- brokers that fail, and refuse


def test_a_broker_that_is_killed_loses_acknowledgements_and_nothing_is_read_twice(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue()
    rabbitmq.publish(queue, texts(0, 400))
    with Loop(source(rabbitmq, queue, tmp_path)) as loop:
        while len(loop.read) < 50:  # however few have arrived
            loop.epoch(max_rows=50)
        while loop.enumerator._ledger._deliveries.keys() & set(range(1, 50)):  # type: ignore[attr-defined]
            time.sleep(0.001)
        waiting = loop.planned(100)  # planned before, committed after
        rabbitmq.kill()
        loop.epoch(waiting)
        rabbitmq.start()
        loop.until(400)
        assert loop.read == texts(0, 400)
        rabbitmq.publish(queue, texts(400, 500))
        loop.until(500)
        assert loop.read == texts(0, 500)
    assert empty(rabbitmq, queue)


@pytest.mark.slow
def test_a_broker_that_stands_still(rabbitmq: RabbitMQ, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than heartbeats allow."""
    queue = rabbitmq.create_queue()
    rabbitmq.publish(queue, texts(0, 200))
    lost: list[object] = []
    monkeypatch.setattr(QueueConnection, "close", lambda self, close=QueueConnection.close: (lost.append(0), close(self)))
    with Loop(source(rabbitmq, queue, tmp_path, requested_heartbeat=1, connection_timeout=0.5)) as loop:
        loop.epoch(max_rows=100)
        rabbitmq.pause()
        try:
            while len(lost) < 2:  # a new connection, too
                loop.enumerator.plan(0)
                time.sleep(0.01)
        finally:
            rabbitmq.resume()
        loop.until(200)
        assert loop.read == texts(0, 200)
    assert empty(rabbitmq, queue)


def test_a_broker_that_stays_away_is_named(rabbitmq: RabbitMQ, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "UNAVAILABLE_SECONDS", 0.5)
    nowhere = RabbitMQSource(config(1), "q", True, fp.SimpleStringSchema())
    with (
        Loop(nowhere.for_job(source(rabbitmq, "q", tmp_path).context)) as loop,  # type: ignore[arg-type]
        pytest.raises(SystemUnavailable, match=r"RabbitMQ at 127\.0\.0\.1:1, vhost '/' does not work: .*refused"),
    ):
        loop.until_it_fails()


@pytest.mark.parametrize(
    ("values", "queue", "message"),
    [
        ({"password": "wrong"}, "q", r"user 'guest' is refused; correct set_user_name and set_password"),
        (
            {"virtual_host": "none"},
            "q",
            r"vhost 'none'.* may not use this virtual host, or it does not exist; correct set_v",
        ),
        ({}, "nowhere", r"vhost '/': queue 'nowhere' does not exist; create it, or correct its name"),
    ],
)
def test_wrong_configuration(rabbitmq: RabbitMQ, tmp_path: Path, values: dict[str, Any], queue: str, message: str) -> None:
    made = RabbitMQSource(config(rabbitmq.port, **values), queue, True, fp.SimpleStringSchema())
    context = source(rabbitmq, queue, tmp_path).context
    assert context is not None
    with Loop(made.for_job(context)) as loop, pytest.raises(ConfigError, match=message):
        loop.until_it_fails()


def test_a_queue_that_is_deleted_under_the_job(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue()
    rabbitmq.publish(queue, texts(0, 10))
    with Loop(source(rabbitmq, queue, tmp_path)) as loop:
        loop.until(10)
        rabbitmq.delete_queue(queue)
        with pytest.raises(ConfigError, match=f"queue '{queue}' does not exist; create it"):
            loop.until_it_fails()


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigError, match="there is no broker; call set_host"):
        fp.RabbitMQConnectionConfig.Builder().build()
    with pytest.raises(ConfigError, match="does not have the form amqp://user"):
        fp.RabbitMQConnectionConfig.Builder().set_uri("http://x")
    with pytest.raises(ConfigError, match="is not a DeserializationSchema"):
        RabbitMQSource(config(1), "q", True, "text")  # type: ignore[arg-type]
    made = fp.RabbitMQConnectionConfig.Builder().set_uri("amqps://me:p%40ss@host/a%2Fb").build()
    assert (made.host, made.port, made.user_name, made.password, made.virtual_host, made.tls) == (
        "host",
        5671,
        "me",
        "p@ss",
        "a/b",
        True,
    )
    assert "p@ss" not in repr(made)


def test_positions_of_later_versions_are_refused(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    with pytest.raises(RestoreRefused, match="has version 2"):
        source(rabbitmq, "q", tmp_path).create_enumerator({"version": 2})
