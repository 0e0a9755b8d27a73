"""Connection settings for an MQTT broker."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_SHARED = re.compile(r"^\$share/[^/]+/")
MAX_SESSION_SECONDS = 0xFFFF_FFFF  # it never expires


@dataclass(frozen=True)
class MqttSettings:
    """``keepalive``: an interval in seconds; after 1.5 intervals of silence, a connection counts as lost. ``receive_maximum``:
    the maximum number of unacknowledged messages. ``id_property``: the user property with a message's id."""

    host: str
    port: int
    topics: tuple[str, ...]
    username: str | None
    password: str | None
    tls: bool
    version: Literal["5", "3.1.1"]
    keepalive: int
    receive_maximum: int
    session_expiry: int
    id_property: str | None

    def subscribes(self, topic: str) -> bool:
        """Whether the source subscribes to a topic."""
        from paho.mqtt.client import topic_matches_sub

        return any(topic_matches_sub(_SHARED.sub("", each), topic) for each in self.topics)

    def __repr__(self) -> str:
        return f"MqttSettings({self.place}, topics {list(self.topics)})"

    @property
    def place(self) -> str:
        """The broker, for messages."""
        return f"{self.host}:{self.port}"
