"""RabbitMQSink: publishes elements as messages to a queue or exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic

import pyarrow as pa

from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.rows import pack_columns, unpack_columns
from forkpoint.contract.format import SerializationSchema, messages_with_values
from forkpoint.contract.sink import Committer, CommitterContext, CommittingSink, SinkBatch, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.errors import ConfigError
from forkpoint.types.variables import T_contra
from forkpoint_rabbitmq.config import RabbitMQConnectionConfig
from forkpoint_rabbitmq.errors import raising_errors
from forkpoint_rabbitmq.publisher import ConfirmedPublisher, Outgoing


class RabbitMQSink(CommittingSink[T_contra], Generic[T_contra]):
    """Publishes elements to a RabbitMQ queue or to ``exchange``, which must exist; PyFlink's ``RMQSink``.

    Output is staged with its epoch and published after the epoch's commit, persistent and with publisher confirms. An interrupted
    commit is repeated: at least once. Repeated messages have the same ``message_id``, so consumers can drop them.

    ``routing_key``: for an exchange, a routing key or a function from the element to its routing key; by default ``queue_name``.
    """

    def __init__(
        self,
        connection_config: RabbitMQConnectionConfig,
        queue_name: str,
        serialization_schema: SerializationSchema[T_contra],
        *,
        exchange: str = "",
        routing_key: str | Callable[[T_contra], str] | None = None,
        content_type: str | None = None,
    ) -> None:
        if not isinstance(serialization_schema, SerializationSchema):
            raise ConfigError(f"RabbitMQSink: {serialization_schema!r} is not a SerializationSchema")
        if not queue_name and not exchange:
            raise ConfigError("RabbitMQSink: there is no queue; give its name, or an exchange")
        if routing_key is not None and not exchange:
            raise ConfigError("RabbitMQSink: a routing key is for an exchange; also give exchange=")
        self._config = connection_config
        self._queue = queue_name
        self._schema = serialization_schema
        self._exchange = exchange
        self._routing_key = queue_name if routing_key is None else routing_key
        self._content_type = content_type
        self._checked = False

    def create_writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        return _Writer(context, self._schema, self._routing_key)

    def check(self, committables: list[JSON]) -> None:
        if self._checked:
            return
        import pika

        used = f"exchange {self._exchange!r}" if self._exchange else f"queue {self._queue!r}"
        with raising_errors(self._config, used):
            connection = pika.BlockingConnection(self._config.parameters("check"))
            try:
                channel = connection.channel()
                if self._exchange:
                    channel.exchange_declare(self._exchange, passive=True)
                else:
                    channel.queue_declare(self._queue, passive=True)
            finally:
                if connection.is_open:
                    connection.close()
        self._checked = True

    def create_committer(self, context: CommitterContext) -> Committer:
        return _Committer(context, self._config, self._exchange, self._content_type)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked": False}


class _Writer(SinkWriter[T_contra], Generic[T_contra]):
    """Stages a subtask's messages of an epoch."""

    def __init__(self, context: SinkContext, schema: SerializationSchema[T_contra], key: str | Callable[[T_contra], str]) -> None:
        self._context = context
        self._schema = schema
        self._key = key
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: SinkBatch[T_contra]) -> None:
        values = messages_with_values(self._schema, batch, "RabbitMQSink")
        if callable(self._key):
            keys = pa.array(map(self._key, batch.values), pa.string())
        else:
            keys = pa.array([self._key] * len(values), pa.string())
        self._batches.append(pa.RecordBatch.from_arrays([values, keys], ["value", "key"]))

    def prepare_commit(self) -> list[JSON]:
        if not any(map(len, self._batches)):
            return []
        # The attempt is that of the epoch's committed computation, so ids are not reused after the state root is put back.
        return [
            {
                "id": f"{self._context.subtask}-{self._context.attempt}",
                "messages": self._context.stage(pack_columns(self._batches, self._batches[0].schema)),
            }
        ]


class _Committer(Committer):
    """Publishes an epoch's output. ``message_id``: incarnation-uid-epoch-subtask-attempt-index."""

    def __init__(
        self, context: CommitterContext, config: RabbitMQConnectionConfig, exchange: str, content_type: str | None
    ) -> None:
        self._context = context
        self._config = config
        self._exchange = exchange
        self._content_type = content_type
        self._publisher: ConfirmedPublisher | None = None

    def commit(self, output: EpochOutput, newest: int) -> None:
        if self._publisher is None:
            name = f"{self._context.job}/{self._context.uid}"
            self._publisher = ConfirmedPublisher(self._config, self._exchange, name)
        self._publisher.publish(self._messages(output))

    def _messages(self, output: EpochOutput) -> Iterator[Outgoing]:
        for committable in output.committables:
            prefix = f"{self._context.incarnation}-{self._context.uid}-{output.epoch}-{committable['id']}"
            index = 0
            for batch in unpack_columns(self._context.staged(committable["messages"])):
                for value, key in zip(batch.column("value").to_pylist(), batch.column("key").to_pylist(), strict=True):
                    yield Outgoing(key, value or b"", f"{prefix}-{index}", self._content_type)
                    index += 1

    def close(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()
