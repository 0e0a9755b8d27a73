"""Receives the messages of a session.

Messages come with QoS 1. With QoS 2, a client confirms a message (PUBREC) before it hands it over, and the broker then keeps only
the message's number: a client that dies at that point loses the message.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from typing import Any

from forkpoint.connectors.queues.ledger import Due, Ledger, digest
from forkpoint.connectors.queues.messages import Received
from forkpoint.connectors.queues.receiver import Connection
from forkpoint.errors import ConfigError, ForkpointError, JobFailed, SystemUnavailable
from forkpoint_mqtt.config import MqttSettings

log = logging.getLogger("forkpoint.mqtt")

ANSWER_SECONDS = 10.0
QOS = 1
NO_TOPIC = "forkpoint/none"
_REFUSED = {"Bad user name or password", "Not authorized", "Banned", "Bad authentication method"}


class SessionConnection(Connection):
    """``expects_session``: whether the broker should already have the session."""

    def __init__(self, settings: MqttSettings, client_id: str, expects_session: bool, ledger: Ledger) -> None:
        from paho.mqtt.client import Client, MQTTv5, MQTTv311
        from paho.mqtt.enums import CallbackAPIVersion

        self._settings = settings
        self._client_id = client_id
        self._expects_session = expects_session
        self._ledger = ledger
        self._failure: ForkpointError | None = None
        self._subscribed = False
        self._answered = True
        self._closing = False
        self._tag = 0
        self._packet_ids: dict[int, int] = {}  # packet ids by tag, in the order of tags
        is_v5 = settings.version == "5"
        self._client: Any = Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=MQTTv5 if is_v5 else MQTTv311,
            manual_ack=True,
            clean_session=None if is_v5 else False,
            reconnect_on_failure=False,
        )
        if settings.username is not None:
            self._client.username_pw_set(settings.username, settings.password)
        if settings.tls:
            self._client.tls_set()
        self._client.connect_timeout = ANSWER_SECONDS
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_unsubscribe = self._on_unsubscribe
        self._client.on_message = self._on_message
        self._client.on_disconnect = self._on_disconnect
        try:
            self._connect(is_v5)
        except BaseException:
            self.close()
            raise

    def _connect(self, is_v5: bool) -> None:
        settings = self._settings
        options = {"clean_start": False, "properties": self._properties()} if is_v5 else {}
        try:
            self._client.connect(settings.host, settings.port, settings.keepalive, **options)
        except OSError as error:
            raise self._unavailable(str(error)) from error
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self._subscribed:
            self.serve(0.1)
            if time.monotonic() > deadline:
                raise self._unavailable(f"it has not answered for {ANSWER_SECONDS:.0f} s")

    def _properties(self) -> Any:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties: Any = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = self._settings.session_expiry
        properties.ReceiveMaximum = self._settings.receive_maximum
        return properties

    def _unavailable(self, why: str) -> SystemUnavailable:
        return SystemUnavailable(f"the MQTT broker at {self._settings.place} does not work: {why}")

    # -- the client's callbacks, within serve()

    def _on_connect(self, client: Any, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._failure = self._refusal(reason.getName())
            return
        if self._expects_session and not flags.session_present:
            log.warning(
                "the MQTT broker at %s has forgotten session %r: messages published since its last connection are lost",
                self._settings.place,
                self._client_id,
            )
        client.subscribe([(topic, self._options()) for topic in self._settings.topics])

    def _options(self) -> Any:
        from paho.mqtt.subscribeoptions import SubscribeOptions

        if self._settings.version != "5":
            return QOS
        # The broker sends retained messages only for new subscriptions.
        return SubscribeOptions(qos=QOS, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)

    def _refusal(self, reason: str) -> ForkpointError:
        at = f"the MQTT broker at {self._settings.place}"
        if reason in _REFUSED:
            return ConfigError(f"{at} refuses user {self._settings.username!r} ({reason}); correct username and password")
        if reason == "Unsupported protocol version":
            return ConfigError(f"{at} does not speak MQTT {self._settings.version}; set version='3.1.1' or '5'")
        if reason == "Client identifier not valid":
            return ConfigError(f"{at} refuses client id {self._client_id!r}; set another with client_id")
        return self._unavailable(reason)

    def _on_subscribe(self, _client: Any, _data: Any, _mid: int, reasons: Any, _properties: Any) -> None:
        refused = [
            f"{topic!r} ({reason.getName()})"
            for topic, reason in zip(self._settings.topics, reasons, strict=False)
            if reason.is_failure
        ]
        if refused:
            self._failure = ConfigError(
                f"the MQTT broker at {self._settings.place} refuses subscriptions to {', '.join(refused)}; correct the topics, "
                f"or grant user {self._settings.username!r} the right to read them"
            )
        self._subscribed = True

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        self._tag += 1
        if message.qos > 0:
            self._packet_ids[self._tag] = message.mid
        if not self._settings.subscribes(message.topic):  # the session had another subscription earlier
            log.warning("MQTT: skipped a message to %r: the source no longer reads that topic", message.topic)
            self._ledger.skip(self._tag)
            return
        found: dict[str, str] = dict(getattr(message.properties, "UserProperty", None) or ())
        id: bytes | None = None
        if self._settings.id_property is not None:
            if not (given := found.get(self._settings.id_property)):
                self._failure = JobFailed(
                    f"the MQTT broker at {self._settings.place}: a message to {message.topic!r} has no user property "
                    f"{self._settings.id_property!r}; have producers set it, or read without ids, at least once"
                )
                return
            id = digest(given)
        attributes: dict[str, Any] = {"qos": message.qos, "retain": bool(message.retain)}
        if found:
            attributes["properties"] = found
        self._ledger.receive(self._tag, Received(message.payload, message.topic, json.dumps(attributes), id))

    def _on_disconnect(self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if self._failure is None and not self._closing:
            name = reason.getName()
            self._failure = self._unavailable(
                f"disconnected ({name}); if this happens repeatedly, another client has the id {self._client_id!r}"
            )

    # -- called by the receiver

    def serve(self, seconds: float) -> None:
        code = self._client.loop(seconds)
        if self._failure is not None:
            raise self._failure
        if code != 0:
            raise self._unavailable(code.name if hasattr(code, "name") else str(code))

    def acknowledge(self, due: Due) -> None:
        numbered = [tag for tag in self._packet_ids if due.up_to is not None and tag <= due.up_to]
        for tag in (*numbered, *due.others):
            if (mid := self._packet_ids.pop(tag, None)) is not None:
                self._client.ack(mid, QOS)
        self._wait_until_processed()

    def _wait_until_processed(self) -> None:
        """Wait until the broker has processed acknowledgements. It answers only later requests, after processing them."""
        self._answered = False
        self._client.unsubscribe(NO_TOPIC)
        deadline = time.monotonic() + max(ANSWER_SECONDS, 2 * self._settings.keepalive)
        while not self._answered:
            self.serve(0.02)
            if time.monotonic() > deadline:
                raise self._unavailable("it does not answer")

    def _on_unsubscribe(self, *_: Any) -> None:
        self._answered = True

    def close(self) -> None:
        self._closing = True
        with suppress(OSError, ValueError):
            self._client.disconnect()
            for _ in range(3):
                if self._client.loop(0.05) != 0:
                    break
