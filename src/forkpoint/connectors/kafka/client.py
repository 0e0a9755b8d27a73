"""Settings of Kafka's client library (librdkafka) from the user's properties.

Modules that import ``confluent_kafka`` do so inside functions: it is optional.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forkpoint.errors import ConfigError
from forkpoint.extras import require
from forkpoint.graph.secrets import is_secret

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

log = logging.getLogger("forkpoint.kafka")

# Properties of Java's client without a meaning here: classes, and settings that forkpoint decides.
_IGNORED = re.compile(
    r"(key|value)\.(de)?serializer(\..*)?|enable\.auto\.commit|auto\.commit\.interval\.ms|auto\.commit\.enable"
    r"|interceptor\.classes|partition\.assignment\.strategy|max\.poll\.records|metric\.reporters|metrics\..*"
    r"|auto\.include\.jmx\.reporter|exclude\.internal\.topics|register\.consumer\.metrics|group\.protocol|group\.remote\.assignor"
    r"|throw\.on\.fetch\.stable\.offset\.unsupported|sasl\.login\..*|sasl\.client\.callback\.handler\.class"
    r"|security\.providers|ssl\.protocol|ssl\.provider|ssl\.(key|trust)manager\.algorithm|enable\.metrics\.push"
    r"|buffer\.memory|max\.block\.ms"
)
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "max.request.size": "message.max.bytes",
}
QUIET = {"log_level": "2"}  # a callback receives errors
_PROVIDERS_OF_JAAS = re.compile(r"\b(Plain|Scram)LoginModule\b")
_JAAS_OPTION = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;]+))")
_CONSUMERS_ONLY = re.compile(
    r"group\..*|session\.timeout\.ms|heartbeat\.interval\.ms|max\.poll\..*|isolation\.level|auto\.offset\.reset|check\.crcs"
    r"|fetch\..*|max\.partition\.fetch\.bytes|queued\..*|enable\.partition\.eof"
)


@dataclass(frozen=True, repr=False)
class KafkaClient:
    """A cluster's connection properties, by the names of Java's client or librdkafka."""

    properties: Mapping[str, str]

    def __hash__(self) -> int:
        return hash(frozenset(self.properties.items()))

    @property
    def servers(self) -> str:
        return self.properties["bootstrap.servers"]

    def __repr__(self) -> str:
        shown = {name: "…" if is_secret(name) else value for name, value in self.properties.items()}
        return f"KafkaClient({shown})"

    def settings(self) -> dict[str, Any]:
        """librdkafka's settings."""
        return librdkafka(self.properties)

    def settings_of_admin(self) -> dict[str, Any]:
        """librdkafka's settings, without those of consumers only."""
        settings = {name: value for name, value in self.settings().items() if not _CONSUMERS_ONLY.fullmatch(name)}
        return {**QUIET, **settings}


def require_client(feature: str) -> None:
    """Raise ConfigError, naming the extra to install, if the client library is missing."""
    require("confluent_kafka", feature)


def librdkafka(properties: Mapping[str, str]) -> dict[str, Any]:
    """Properties by librdkafka's names, without those of Java's client that have no meaning here. Raises ConfigError for
    properties that librdkafka needs in another form."""
    settings: dict[str, Any] = {}
    for name, value in properties.items():
        if name == "sasl.jaas.config":
            settings.update(_credentials(value))
        elif name in ("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type"):
            settings.update(_truststore(properties))
        elif name == "ssl.endpoint.identification.algorithm":
            settings[name] = value or "none"
        elif not _IGNORED.fullmatch(name):
            settings[_RENAMED.get(name, name)] = value
    return settings


def _credentials(jaas: str) -> dict[str, str]:
    if not _PROVIDERS_OF_JAAS.search(jaas):
        raise ConfigError(
            "Kafka: of sasl.jaas.config, only PlainLoginModule and ScramLoginModule have a meaning in this client; set "
            "librdkafka's own properties instead: sasl.kerberos.*, or sasl.oauthbearer.*"
        )
    options = {name: quoted or plain for name, quoted, plain in _JAAS_OPTION.findall(jaas)}
    if "username" not in options or "password" not in options:
        raise ConfigError("Kafka: sasl.jaas.config lacks username or password; set sasl.username and sasl.password instead")
    return {"sasl.username": options["username"], "sasl.password": re.sub(r"\\(.)", r"\1", options["password"])}


def _truststore(properties: Mapping[str, str]) -> dict[str, str]:
    if properties.get("ssl.truststore.type", "").upper() != "PEM" or "ssl.truststore.location" not in properties:
        raise ConfigError(
            "Kafka: this client reads no Java trust store; convert it (keytool -exportcert -rfc) and set ssl.ca.location to "
            "the PEM file"
        )
    return {"ssl.ca.location": properties["ssl.truststore.location"]}


def on_error(client: str) -> Any:
    """A callback that logs a client's errors. It retries by itself."""

    def log_error(error: KafkaError) -> None:
        log.info("%s: %s", client, error.str())

    return log_error
