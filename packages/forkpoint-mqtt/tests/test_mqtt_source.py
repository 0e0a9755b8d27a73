"""The MQTT source against a real broker: what is read, acknowledged, sent again and refused."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from connectors.connector_reading import side_elements
from connectors.queue_loop import Loop
from forkpoint.connectors.queues import receiver
from forkpoint.errors import ConfigError, JobFailed, RecordParseError, SystemUnavailable
from forkpoint_mqtt import consumer
from forkpoint_mqtt.consumer import SessionConnection
from servers.mqtt_server import Mosquitto


class Text(fp.DeserializationSchema[str]):
    """UTF-8; "bad" is no good text."""

    def deserialize(self, message: bytes) -> str:
        if message == b"bad":
            raise ValueError("bad text")
        return message.decode()


class Whole(fp.MqttDeserializationSchema[Any]):
    def deserialize(self, message: fp.MqttMessage) -> Any:
        return message


def texts(start: int, stop: int) -> list[str]:
    return [f"m{n}" for n in range(start, stop)]


def source(mosquitto: Mosquitto, topic: Any, root: Path, schema: Any = None, **options: Any) -> fp.MqttSource[Any]:
    """A source in a job, whose name is the test's."""
    made: fp.MqttSource[Any] = fp.MqttSource("127.0.0.1", topic, schema or Text(), **{"port": mosquitto.port, **options})
    return made.for_job(fp.SourceContext("words", root.name, str(root)))


def subscribed(loop: Loop) -> Loop:
    while not loop.enumerator.plan(0):  # the first epoch announces the split
        time.sleep(0.002)
    return loop


def test_messages_are_read_in_order_and_acknowledged(mosquitto: Mosquitto, tmp_path: Path) -> None:
    topic = mosquitto.topic()
    with subscribed(Loop(source(mosquitto, topic, tmp_path))) as loop:
        mosquitto.publish(topic, texts(0, 500))
        loop.until(500)
        assert loop.read == texts(0, 500)
    with Loop(source(mosquitto, topic, tmp_path), loop.position) as loop:
        mosquitto.publish(topic, ["last"])
        loop.until(1)
        assert loop.read == ["last"]  # nothing came again
    assert not any(path.is_file() for path in tmp_path.rglob("*"))  # what was stored is removed


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_not_acknowledged_comes_again(mosquitto: Mosquitto, tmp_path: Path, version: str, qos: int) -> None:
    """Published with QoS 2, too. Meanwhile the job does not run, and more is published."""
    topic = mosquitto.topic()
    options: Any = {"version": version}
    with subscribed(Loop(source(mosquitto, topic, tmp_path, **options))) as loop:
        mosquitto.publish(topic, texts(0, 50), qos=qos)
        while len(loop.read) < 10:
            loop.epoch(commit=False)
    mosquitto.publish(topic, texts(50, 60), qos=qos)
    with Loop(source(mosquitto, topic, tmp_path, **options), loop.position) as loop:
        loop.until(60)
        assert loop.read == texts(0, 60)


def test_with_ids_what_was_committed_but_not_acknowledged_is_not_read_again(mosquitto: Mosquitto, tmp_path: Path) -> None:
    topic = mosquitto.topic()
    with subscribed(Loop(source(mosquitto, topic, tmp_path, id_property="id"))) as loop:
        mosquitto.publish(topic, texts(0, 100), ids=True)
        position = loop.epoch(loop.planned(60), commit=False)
        first = loop.read
    with Loop(source(mosquitto, topic, tmp_path, id_property="id"), position) as loop:
        loop.until(100 - len(first))
        assert first + loop.read == texts(0, 100)


def test_the_number_of_unacknowledged_messages_has_a_bound(mosquitto: Mosquitto, tmp_path: Path) -> None:
    topic = mosquitto.topic()
    with subscribed(Loop(source(mosquitto, topic, tmp_path, receive_maximum=10))) as loop:
        mosquitto.publish(topic, texts(0, 30))
        while len(loop.read) < 10:
            loop.epoch(commit=False)
        time.sleep(0.2)
        assert loop.enumerator.plan(100) == []
        loop.enumerator.committed(loop.position)
        loop.until(30)
        assert loop.read == texts(0, 30)


def test_messages_with_all_that_is_known_of_them(mosquitto: Mosquitto, tmp_path: Path) -> None:
    topic = mosquitto.topic()
    mosquitto.publish(f"{topic}/a", ["retained"], retain=True)
    with Loop(source(mosquitto, [f"{topic}/+", f"{topic}/b/#"], tmp_path, Whole())) as loop:
        loop.until(1)
        mosquitto.publish(f"{topic}/b/c", ["x"], ids=True)
        mosquitto.publish(f"{topic}/a/c", ["not subscribed"])
        mosquitto.publish(f"{topic}/b/d", ["y"], qos=0)
        loop.until(3)
    assert loop.read == [
        fp.MqttMessage(f"{topic}/a", b"retained", 1, True),
        fp.MqttMessage(f"{topic}/b/c", b"x", 1, False, {"id": "x"}),
        fp.MqttMessage(f"{topic}/b/d", b"y", 0, False),
    ]


def test_topics_that_are_taken_out_are_acknowledged_and_left_out(
    mosquitto: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = mosquitto.topic(), mosquitto.topic()
    with subscribed(Loop(source(mosquitto, [one, two], tmp_path))) as loop:
        position = loop.epoch([])
    mosquitto.publish(one, ["a"])
    mosquitto.publish(two, ["b"])
    with Loop(source(mosquitto, two, tmp_path), position) as loop:
        loop.until(1)
        assert loop.read == ["b"]
    assert "the source no longer reads that topic" in caplog.text


def test_messages_that_cannot_be_read_fail_or_are_skipped(mosquitto: Mosquitto, tmp_path: Path) -> None:
    topic = mosquitto.topic()
    mosquitto.begin_session("reader-of-bad", topic)
    mosquitto.publish(topic, ["a", "bad", "b"])
    options: Any = {"client_id": "reader-of-bad"}
    with (
        Loop(source(mosquitto, topic, tmp_path, **options)) as loop,
        pytest.raises(RecordParseError, match="cannot read a message"),
    ):
        loop.until(2)
    with Loop(source(mosquitto, topic, tmp_path, on_parse_error="skip", **options)) as loop:
        loop.until(2)
        assert loop.read == ["a", "b"]


def test_messages_that_cannot_be_read_become_dead_letters(mosquitto: Mosquitto, tmp_path: Path) -> None:
    topic = mosquitto.topic()
    tag = fp.OutputTag("dead", fp.DeadLetter)
    with subscribed(Loop(source(mosquitto, topic, tmp_path, on_parse_error=tag))) as loop:
        mosquitto.publish(topic, ["a", "bad", "b"])
        letters: list[fp.DeadLetter] = []
        while len(loop.read) < 2:
            planned = loop.planned()
            letters += side_elements(loop.source, planned)
            loop.epoch(planned)
    (letter,) = letters
    assert (letter.place["topic"], letter.data) == (topic, b"bad")
    assert loop.read == ["a", "b"]


def test_a_message_without_an_id_is_refused(mosquitto: Mosquitto, tmp_path: Path) -> None:
    topic = mosquitto.topic()
    with subscribed(Loop(source(mosquitto, topic, tmp_path, id_property="id"))) as loop:
        mosquitto.publish(topic, ["x"])
        with pytest.raises(JobFailed, match="has no user property 'id'; have producers set it"):
            loop.until_it_fails()


# -- brokers that fail, and refuse


def test_a_broker_that_is_killed(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """What was committed meanwhile is acknowledged afterwards, and is known by its id."""
    topic = mosquitto.topic()
    with subscribed(Loop(source(mosquitto, topic, tmp_path, id_property="id"))) as loop:
        mosquitto.publish(topic, texts(0, 100), ids=True)
        waiting = loop.planned(60)
        mosquitto.store()
        mosquitto.kill()
        loop.epoch(waiting)
        mosquitto.start()
        loop.until(100)
        mosquitto.publish(topic, texts(100, 120), ids=True)
        loop.until(120)
        assert loop.read == texts(0, 120)


def test_a_broker_that_stands_still(mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the keepalive, and than a new connection may take: nothing waits for it without end."""
    monkeypatch.setattr(consumer, "ANSWER_SECONDS", 0.5)
    lost: list[object] = []
    close = SessionConnection.close
    monkeypatch.setattr(SessionConnection, "close", lambda self: (lost.append(0), close(self)))
    topic = mosquitto.topic()
    with subscribed(Loop(source(mosquitto, topic, tmp_path, id_property="id", keepalive=1))) as loop:
        mosquitto.publish(topic, texts(0, 20), ids=True)
        loop.epoch()
        mosquitto.pause()
        try:
            while len(lost) < 2:
                loop.enumerator.plan(0)
                time.sleep(0.01)
        finally:
            mosquitto.resume()
        mosquitto.publish(topic, texts(20, 30), ids=True)
        loop.until(30)
        assert loop.read == texts(0, 30)


def test_a_broker_that_stays_away_is_named(mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "UNAVAILABLE_SECONDS", 0.3)
    with (
        Loop(source(mosquitto, "t", tmp_path, port=1)) as loop,
        pytest.raises(SystemUnavailable, match=r"the MQTT broker at 127\.0\.0\.1:1 does not work: .*refused"),
    ):
        loop.until_it_fails()


def test_a_broker_that_has_forgotten_the_session(mosquitto: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topic = mosquitto.topic()
    with subscribed(Loop(source(mosquitto, topic, tmp_path))) as loop:
        position = loop.epoch([])
    with Loop(source(mosquitto, topic, tmp_path, client_id="another"), position) as loop:
        until(loop, lambda: "has forgotten session 'another'" in caplog.text)
        mosquitto.publish(topic, ["x"])
        loop.until(1)


def test_two_jobs_with_one_client_id(mosquitto: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    topic = mosquitto.topic()
    with (
        subscribed(Loop(source(mosquitto, topic, tmp_path))) as one,
        subscribed(Loop(source(mosquitto, topic, tmp_path))),
    ):
        until(one, lambda: "another client has the id" in caplog.text)


def until(loop: Loop, condition: Callable[[], bool]) -> None:
    while not condition():
        loop.enumerator.plan(0)
        time.sleep(0.005)


def test_a_user_that_is_refused(tmp_path: Path) -> None:
    (passwords := tmp_path / "passwords").write_text("")
    (rights := tmp_path / "rights").write_text("topic readwrite open\n")
    settings = f"password_file {passwords}\n"
    for file in (passwords, rights):
        file.chmod(0o600)
    broker = Mosquitto(tmp_path / "strict", settings.replace("\n", f"\nacl_file {rights}\n"))
    try:
        with (
            Loop(source(broker, "open", tmp_path, username="me", password="wrong")) as loop,
            pytest.raises(ConfigError, match=r"refuses user 'me' \(.*\); correct username and password"),
        ):
            loop.until_it_fails()
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": "4"}, "version is '4'; give '5' or '3.1.1'"),
        ({"version": "3.1.1", "id_property": "id"}, "user properties need MQTT 5"),
        ({"receive_maximum": 0}, r"receive_maximum 0 is not within 1\.\.65535"),
        ({"keepalive": 0}, "a keepalive is needed to notice lost connections"),
        ({"session_expiry": 0}, "without a session, messages would be lost at each disconnect"),
        ({"on_parse_error": "x"}, "on_parse_error is 'x'; give 'fail' or 'skip'"),
    ],
)
def test_wrong_configuration(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fp.MqttSource("localhost", "t", Text(), **options)
    with pytest.raises(ConfigError, match="there is no broker or no topic"):
        fp.MqttSource("localhost", [], Text())
    with pytest.raises(ConfigError, match="neither a DeserializationSchema nor a MqttDes"):
        fp.MqttSource("localhost", "t", "text")  # type: ignore[arg-type]


def test_the_password_is_not_shown() -> None:
    made: fp.MqttSource[str] = fp.MqttSource("localhost", "t", Text(), username="me", password="secret")
    assert "secret" not in repr(vars(made))
