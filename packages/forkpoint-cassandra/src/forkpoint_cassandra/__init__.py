"""Cassandra as a sink, with Apache's driver (``cassandra-driver``)."""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint_cassandra.sink import CassandraSink

__getattr__ = loader(__name__)

__all__ = [
    "CassandraSink",
]
