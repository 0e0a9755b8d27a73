"""RabbitMQ queues as source and sink."""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint_rabbitmq.config import RabbitMQConnectionConfig, RabbitMQConnectionConfigBuilder
    from forkpoint_rabbitmq.sink import RabbitMQSink
    from forkpoint_rabbitmq.source import RabbitMQSource

__getattr__ = loader(__name__)

__all__ = [
    "RabbitMQConnectionConfig",
    "RabbitMQConnectionConfigBuilder",
    "RabbitMQSink",
    "RabbitMQSource",
]
