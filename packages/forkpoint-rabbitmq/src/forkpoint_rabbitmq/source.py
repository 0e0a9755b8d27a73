"""A RabbitMQ queue as a source."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Generic, Self

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
from forkpoint_rabbitmq.config import RabbitMQConnectionConfig
from forkpoint_rabbitmq.consumer import QueueConnection


@dataclass(frozen=True)
class RabbitMQSource(Source[T], Generic[T]):
    """Reads a RabbitMQ queue, which must exist; PyFlink's ``RMQSource``.

    A message is acknowledged once the epoch that read it is committed; if the acknowledgement is lost, the broker delivers the
    message again. With ``use_correlation_id``, the producer's ``correlation_id`` identifies messages, and they are read exactly
    once; ``id_property="message_id"`` uses that property instead. Without ids, messages are read at least once.

    ``on_parse_error``: for messages that cannot be deserialized: ``"fail"``, ``"skip"``, or an ``OutputTag("…", DeadLetter)`` as
    their side output.
    """

    connection_config: RabbitMQConnectionConfig
    queue_name: str
    use_correlation_id: bool
    deserialization_schema: DeserializationSchema[T]
    id_property: str | None = None
    on_parse_error: OnParseError = "fail"
    context: SourceContext | None = None

    def __post_init__(self) -> None:
        check_on_parse_error("RabbitMQSource", self.on_parse_error)
        if not self.queue_name:
            raise ConfigError("RabbitMQSource: there is no queue; give its name")
        if not isinstance(self.deserialization_schema, DeserializationSchema):
            raise ConfigError(f"RabbitMQSource: {self.deserialization_schema!r} is not a DeserializationSchema")
        if self.id_property not in (None, "correlation_id", "message_id"):
            raise ConfigError(f"RabbitMQSource: id_property is {self.id_property!r}; give 'correlation_id' or 'message_id'")

    def for_job(self, context: SourceContext) -> Self:
        return replace(self, context=context)

    def output_type(self) -> TypeInformation[T] | None:
        produced = self.deserialization_schema.get_produced_type()
        return None if produced is None else type_of(produced)

    @property
    def side_outputs(self) -> Collection[OutputTag[Any]]:
        return side_outputs_of(self.on_parse_error)

    @property
    def bounded(self) -> bool:
        return False

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        assert self.context is not None
        config, queue, name = self.connection_config, self.queue_name, f"{self.context.job}/{self.context.uid}"
        id = "correlation_id" if self.use_correlation_id else self.id_property

        def connect(ledger: Ledger) -> QueueConnection:
            return QueueConnection(config, queue, id, name, ledger)

        return QueueEnumerator(self._name, queue, self.context, config.prefetch_count, connect, position)

    def create_reader(self) -> SourceReader[T]:
        assert self.context is not None
        return QueueReader(self._name, "routing_key", self.context.state_root, self._deserialize, self.on_parse_error)

    @property
    def _name(self) -> str:
        return f"RabbitMQSource of queue {self.queue_name!r}"

    def _deserialize(self, messages: pa.RecordBatch) -> Deserialized[T]:
        return self.deserialization_schema.deserialize_batch(messages.column("value"))
