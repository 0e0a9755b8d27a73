"""The RabbitMQ sink against a real broker: what is published, repeated and refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from connectors.connector_reading import Elements, json_round_trip
from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.contract.sink import CommitterContext, SinkContext
from forkpoint.errors import ConfigError, JobFailed, SystemUnavailable
from forkpoint_rabbitmq import publisher
from forkpoint_rabbitmq.sink import RabbitMQSink
from queue_counting import Text, config
from servers.rabbitmq_server import RabbitMQ


class Staged:
    """A sink with its committer, and output to commit."""

    def __init__(self, sink: RabbitMQSink[str], root: Path) -> None:
        self.sink = sink
        self.root = str(root)
        self.committer = sink.create_committer(CommitterContext("out", "job", "", "0123", self.root))

    def output(self, epoch: int, *subtasks: list[str], attempt: str = "a") -> EpochOutput:
        committables = []
        for subtask, elements in enumerate(subtasks):
            writer = self.sink.create_writer(SinkContext("out", "job", epoch, subtask, attempt, 1, self.root))
            writer.write(Elements(elements))
            committables += json_round_trip(writer.prepare_commit())
        return EpochOutput(epoch=epoch, committables=committables)

    def commit(self, output: EpochOutput) -> None:
        self.sink.check(output.committables)
        self.committer.commit(output, output.epoch)

    def __enter__(self) -> Staged:
        return self

    def __exit__(self, *_: object) -> None:
        self.committer.close()


def staged(rabbitmq: RabbitMQ, queue: str, root: Path, **options: Any) -> Staged:
    return Staged(RabbitMQSink(config(rabbitmq.port), queue, Text(), **options), root)


def test_messages_are_persistent_and_in_order(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue()
    large = [f"m{n:0100}" for n in range(3000)]
    with staged(rabbitmq, queue, tmp_path, content_type="text/plain") as one:
        one.commit(one.output(1, large, ["x"]))
        one.commit(one.output(2, [], ["y"]))
    found = rabbitmq.read(queue)
    assert [body for body, _ in found] == [*large, "x", "y"]
    assert {properties.delivery_mode for _, properties in found} == {2}
    assert {properties.content_type for _, properties in found} == {"text/plain"}


def test_a_commit_that_is_repeated_has_the_same_ids(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue()
    with staged(rabbitmq, queue, tmp_path) as one:
        output = one.output(7, ["a", "b"], ["c"])
        one.commit(output)
    with staged(rabbitmq, queue, tmp_path) as other:
        other.commit(output)
    ids = [properties.message_id for _, properties in rabbitmq.read(queue)]
    assert ids == ["0123-out-7-0-a-0", "0123-out-7-0-a-1", "0123-out-7-1-a-0"] * 2


def test_an_epoch_that_is_computed_anew_has_other_ids(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    """As after the state root was put back to an earlier copy: its output may differ."""
    queue = rabbitmq.create_queue()
    with staged(rabbitmq, queue, tmp_path) as one:
        for attempt in ("a", "b"):
            one.commit(one.output(7, ["x"], attempt=attempt))
    assert len({properties.message_id for _, properties in rabbitmq.read(queue)}) == 2


def test_an_exchange_with_routing_keys(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    even, odd = rabbitmq.create_queue(), rabbitmq.create_queue()

    def bind(channel: Any) -> None:
        channel.exchange_declare("numbers", "direct", durable=True)
        channel.queue_bind(even, "numbers", "0")
        channel.queue_bind(odd, "numbers", "1")

    rabbitmq.on_channel(bind)
    with staged(rabbitmq, "", tmp_path, exchange="numbers", routing_key=lambda n: str(int(n) % 2)) as one:
        one.commit(one.output(1, ["1", "2", "3", "4"]))
    assert (rabbitmq.values(even), rabbitmq.values(odd)) == (["2", "4"], ["1", "3"])
    with (
        staged(rabbitmq, "", tmp_path, exchange="numbers", routing_key="other") as one,
        pytest.raises(JobFailed, match="no queue accepts a message to exchange 'numbers' with routing key 'other'; bind a queue"),
    ):
        one.commit(one.output(1, ["1"]))


def test_a_queue_that_is_missing_is_refused_before_anything_is_committed(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    with (
        staged(rabbitmq, "nowhere", tmp_path) as one,
        pytest.raises(ConfigError, match="queue 'nowhere' does not exist"),
    ):
        one.sink.check(one.output(1, ["x"]).committables)
    with (
        staged(rabbitmq, "", tmp_path, exchange="nowhere") as one,
        pytest.raises(ConfigError, match="exchange 'nowhere' does not exist"),
    ):
        one.sink.check([])


def test_a_queue_that_is_deleted_under_the_job_gets_everything_once_it_is_back(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue()
    with staged(rabbitmq, queue, tmp_path) as one:
        one.commit(one.output(1, ["x"]))
        rabbitmq.delete_queue(queue)
        output = one.output(2, ["y", "z"])
        with pytest.raises(JobFailed, match=f"no queue accepts a message to queue '{queue}'; create it"):
            one.commit(output)
    rabbitmq.create_queue(queue)
    with staged(rabbitmq, queue, tmp_path) as one:
        one.commit(output)
    assert rabbitmq.values(queue) == ["y", "z"]


def test_a_full_queue_is_waited_for(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue = rabbitmq.create_queue(**{"x-max-length": 2, "x-overflow": "reject-publish"})
    with staged(rabbitmq, queue, tmp_path) as one:
        with pytest.raises(SystemUnavailable, match="refuses messages: a queue is full"):
            one.commit(one.output(1, ["a", "b", "c", "d"]))
        one.committer.close()


def test_a_broker_that_does_not_answer(rabbitmq: RabbitMQ, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "CONFIRM_SECONDS", 0.3)
    queue = rabbitmq.create_queue()
    with staged(rabbitmq, queue, tmp_path) as one:
        one.commit(one.output(1, ["a"]))
        output = one.output(2, ["b"])
        rabbitmq.pause()
        try:
            with pytest.raises(SystemUnavailable, match=r"has not answered for 0 s; 1 messages are not confirmed"):
                one.commit(output)
        finally:
            rabbitmq.resume()
    with staged(rabbitmq, queue, tmp_path) as one:
        one.commit(output)
    found = {properties.message_id: body for body, properties in rabbitmq.read(queue)}
    assert list(found.values()) == ["a", "b"]


def test_a_broker_that_accepts_no_connection(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    """It has stopped: the system still takes connections for it."""
    sink = RabbitMQSink(config(rabbitmq.port, connection_timeout=0.3), "q", Text())
    one = Staged(sink, tmp_path)
    output = one.output(1, ["x"])
    rabbitmq.pause()
    try:
        with pytest.raises(SystemUnavailable, match=r"does not work: Timeout"):
            sink.check(output.committables)
        with pytest.raises(SystemUnavailable, match=r"does not work: |has not answered"):
            one.committer.commit(output, 1)
    finally:
        rabbitmq.resume()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"password": "wrong"}, "user 'guest' is refused"),
        ({"virtual_host": "x"}, "or it does not exist; correct set_virtual_host"),
    ],
)
def test_wrong_configuration(rabbitmq: RabbitMQ, tmp_path: Path, values: dict[str, Any], message: str) -> None:
    sink = RabbitMQSink(replace(config(rabbitmq.port), **values), "q", Text())
    with pytest.raises(ConfigError, match=message):
        sink.check([])
    one = Staged(sink, tmp_path)
    output = one.output(1, ["x"])
    with pytest.raises(ConfigError, match=message):
        one.committer.commit(output, 1)


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigError, match="there is no queue; give its name, or an exchange"):
        RabbitMQSink(config(1), "", Text())
    with pytest.raises(ConfigError, match="a routing key is for an exchange"):
        RabbitMQSink(config(1), "q", Text(), routing_key="k")
    with pytest.raises(ConfigError, match="is not a SerializationSchema"):
        RabbitMQSink(config(1), "q", fp.SimpleStringSchema)  # type: ignore[arg-type]
