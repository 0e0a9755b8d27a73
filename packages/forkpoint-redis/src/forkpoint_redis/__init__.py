"""Redis as a sink, with redis-py."""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint_redis.sink import RedisSink

__getattr__ = loader(__name__)

__all__ = [
    "RedisSink",
]
