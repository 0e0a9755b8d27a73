"""MQTT topics as a source."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Generic, Literal, Self

import pyarrow as pa

from forkpoint.connectors.formats.reading import OnParseError, check_on_parse_error, side_outputs_of
from forkpoint.connectors.queues.enumerator import QueueEnumerator
from forkpoint.connectors.queues.ledger import Ledger
from forkpoint.connectors.queues.reader import QueueReader
from forkpoint.contract.format import DeserializationSchema, Deserialized
from forkpoint.contract.source import JSON, Source, SourceContext, SourceReader, SplitEnumerator
from forkpoint.errors import ConfigError
from forkpoint.functions import OutputTag
from forkpoint.types import TypeInformation, type_of
from forkpoint.types.variables import T
from forkpoint_mqtt.config import MAX_SESSION_SECONDS, MqttSettings
from forkpoint_mqtt.consumer import SessionConnection
from forkpoint_mqtt.records import MqttDeserializationSchema

SPLIT = "mqtt"


class MqttSource(Source[T], Generic[T]):
    """Subscribes to MQTT topics, by filters such as ``"sensors/+/temperature"``, with QoS 1 and a session that outlives its
    connections.

    A message is acknowledged once the epoch that read it is committed; otherwise the broker sends it again. So messages are read
    at least once. With ``id_property``, the user property (MQTT 5) in which the producer sets an id, they are read exactly once.

    ``client_id``: the session's id, by default from the job's name and the source's uid. ``receive_maximum``: the maximum number
    of unacknowledged messages, which also limits an epoch (MQTT 5; otherwise the broker decides). ``session_expiry``: how many
    seconds the broker keeps the session of a job that is not running (MQTT 5), by default forever. ``on_parse_error``: for
    messages that cannot be deserialized: ``"fail"``, ``"skip"``, or an ``OutputTag("…", DeadLetter)`` as their side output.
    """

    def __init__(
        self,
        host: str,
        topics: str | Sequence[str],
        deserialization_schema: DeserializationSchema[T] | MqttDeserializationSchema[T],
        *,
        port: int | None = None,
        username: str | None = None,
        password: str | None = None,
        tls: bool = False,
        version: Literal["5", "3.1.1"] = "5",
        client_id: str | None = None,
        keepalive: int = 60,
        receive_maximum: int = 5000,
        session_expiry: int = MAX_SESSION_SECONDS,
        id_property: str | None = None,
        on_parse_error: OnParseError = "fail",
    ) -> None:
        check_on_parse_error("MqttSource", on_parse_error)
        given = (topics,) if isinstance(topics, str) else tuple(topics)
        if not host or not given:
            raise ConfigError("MqttSource: there is no broker or no topic; give a host and topics")
        if not isinstance(deserialization_schema, DeserializationSchema | MqttDeserializationSchema):
            raise ConfigError(
                f"MqttSource: {deserialization_schema!r} is neither a DeserializationSchema nor a MqttDeserializationSchema"
            )
        if version not in ("5", "3.1.1"):
            raise ConfigError(f"MqttSource: version is {version!r}; give '5' or '3.1.1'")
        if version != "5" and id_property is not None:
            raise ConfigError("MqttSource: user properties need MQTT 5; leave out id_property or version")
        if not 1 <= receive_maximum <= 65535:
            raise ConfigError(f"MqttSource: receive_maximum {receive_maximum} is not within 1..65535")
        if keepalive < 1:
            raise ConfigError("MqttSource: a keepalive is needed to notice lost connections; give seconds, such as 60")
        if not 1 <= session_expiry <= MAX_SESSION_SECONDS:
            raise ConfigError(
                f"MqttSource: a session_expiry of {session_expiry} s is not within 1..{MAX_SESSION_SECONDS}; without a session, "
                "messages would be lost at each disconnect"
            )
        self._settings = MqttSettings(
            host,
            port or (8883 if tls else 1883),
            given,
            username,
            password,
            tls,
            version,
            keepalive,
            receive_maximum,
            session_expiry,
            id_property,
        )
        self._schema = deserialization_schema
        self._client_id = client_id
        self._on_parse_error: OnParseError = on_parse_error
        self._context: SourceContext | None = None

    def for_job(self, context: SourceContext) -> Self:
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__, _context=context)
        return copy

    def output_type(self) -> TypeInformation[T] | None:
        produced: Any = self._schema.get_produced_type()
        return None if produced is None else type_of(produced)

    @property
    def side_outputs(self) -> Collection[OutputTag[Any]]:
        return side_outputs_of(self._on_parse_error)

    @property
    def bounded(self) -> bool:
        return False

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        context = self._context
        assert context is not None
        settings, client_id = self._settings, self._client_id or f"forkpoint-{context.job}-{context.uid}"
        connected = position is not None

        def connect(ledger: Ledger) -> SessionConnection:
            nonlocal connected
            connection = SessionConnection(settings, client_id, connected, ledger)
            connected = True
            return connection

        return QueueEnumerator(self._name, SPLIT, context, settings.receive_maximum, connect, position)

    def create_reader(self) -> SourceReader[T]:
        assert self._context is not None
        return QueueReader(self._name, "topic", self._context.state_root, self._deserialize, self._on_parse_error)

    @property
    def _name(self) -> str:
        return f"MqttSource of {', '.join(self._settings.topics)}"

    def _deserialize(self, messages: pa.RecordBatch) -> Deserialized[T]:
        if isinstance(self._schema, MqttDeserializationSchema):
            return self._schema.deserialize_batch(messages)
        return self._schema.deserialize_batch(messages.column("value"))
