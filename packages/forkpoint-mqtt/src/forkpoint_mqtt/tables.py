"""Tables of SQL with ``'connector' = 'mqtt'``, by the names of the source's parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from forkpoint.contract.format import DeserializationSchema, Deserialized
from forkpoint.table.connectors.formats import changes_by_format, deserialization
from forkpoint.table.connectors.metadata import Metadata
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.registry import Connector
from forkpoint.types import Row
from forkpoint.types.kinds.records import RecordType
from forkpoint_mqtt.config import MAX_SESSION_SECONDS
from forkpoint_mqtt.records import MqttDeserializationSchema, MqttMessage
from forkpoint_mqtt.source import MqttSource


def _source(options: TableOptions) -> MqttSource[Any]:
    rows = deserialization(options, options.table.schema)
    return MqttSource(
        options.required("host"),
        [topic.strip() for topic in options.required("topic").split(";")],
        RowsOfMessages(rows, Metadata.of(options, rows.get_produced_type(), {"topic": ("STRING",)})),
        port=options.number("port"),
        username=options.get("username"),
        password=options.get("password"),
        tls=options.flag("tls"),
        version="5" if options.choice("version", ("5", "3.1.1"), "5") == "5" else "3.1.1",
        client_id=options.get("client-id"),
        keepalive=options.number("keepalive", 60) or 0,
        receive_maximum=options.number("receive-maximum", 5000) or 0,
        session_expiry=options.number("session-expiry", MAX_SESSION_SECONDS) or 0,
        id_property=options.get("id-property"),
    )


@dataclass(frozen=True)
class RowsOfMessages(MqttDeserializationSchema[Row]):
    """Rows of messages' payloads, with columns about the messages."""

    rows: DeserializationSchema[Any]
    metadata: Metadata

    def get_produced_type(self) -> RecordType:
        return self.metadata.row

    def deserialize(self, message: MqttMessage) -> Row:
        raise AssertionError("messages are deserialized as columns")

    def deserialize_batch(self, messages: pa.RecordBatch) -> Deserialized[Row]:
        found = self.rows.deserialize_batch(messages.column("value"))
        topics = messages.column("key")
        return self.metadata.added_to(found, len(messages), lambda column, places: topics.take(pa.array(places)))


CONNECTOR = Connector(_source, makes=changes_by_format, has_metadata=True)
