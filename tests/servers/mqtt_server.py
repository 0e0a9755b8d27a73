"""A real MQTT broker (mosquitto)."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from servers.debian import debian
from servers.process import Server, accepts, free_port

_SETTINGS = """
listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {directory}/
autosave_on_changes true
autosave_interval 1
max_queued_messages 0
user {user}
"""


class Mosquitto(Server):
    """A broker that stores sessions in ``directory`` after each change. ``settings``: more lines of its configuration."""

    def __init__(self, directory: Path, settings: str = "") -> None:
        self._program = debian("mosquitto", "mosquitto")
        directory.mkdir(parents=True)
        self.directory = directory
        self.port = free_port()
        text = _SETTINGS.format(port=self.port, directory=directory, user="root" if os.getuid() == 0 else "")
        (directory / "mosquitto.conf").write_text(text + settings)
        super().__init__(directory)

    def command(self) -> list[str]:
        return [self._program, "-c", str(self.directory / "mosquitto.conf")]

    def serves(self) -> bool:
        return accepts(self.port)

    def store(self) -> None:
        """Have it store its sessions, and wait for that: by itself it confirms messages before it does."""
        time.sleep(0.2)  # it may be storing an earlier state
        file = self.directory / "mosquitto.db"
        before = file.stat().st_mtime_ns
        self._signal(signal.SIGUSR1)
        while file.stat().st_mtime_ns == before:
            time.sleep(0.02)

    def topic(self) -> str:
        """A new topic."""
        return f"topic/{uuid.uuid4().hex[:12]}"

    def begin_session(self, client_id: str, topic: str) -> None:
        """Subscribe as a client that goes away: the broker keeps messages for it."""
        client = Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTv5)
        properties: Any = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 0xFFFF_FFFF
        subscribed = threading.Event()
        client.on_connect = lambda *_: client.subscribe(topic, 1)
        client.on_subscribe = lambda *_: subscribed.set()
        client.connect("127.0.0.1", self.port, properties=properties)
        client.loop_start()
        subscribed.wait()
        client.disconnect()
        client.loop_stop()

    def publish(self, topic: str, messages: Iterable[str], *, ids: bool = False, qos: int = 1, retain: bool = False) -> None:
        """Publish, and wait until the broker has everything. Each has its text as its user property "id", with ``ids``."""
        client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
        client.max_queued_messages_set(0)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        sent = []
        for message in messages:
            properties: Any = Properties(PacketTypes.PUBLISH)
            if ids:
                properties.UserProperty = ("id", message)
            sent.append(client.publish(topic, message, qos, retain, properties))
        for each in sent:
            each.wait_for_publish()
        client.disconnect()
        client.loop_stop()
