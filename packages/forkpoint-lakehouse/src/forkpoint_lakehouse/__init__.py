"""Sinks for lakehouse tables: Delta Lake and Apache Iceberg."""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint_lakehouse.delta import DeltaSink
    from forkpoint_lakehouse.iceberg import IcebergSink

__getattr__ = loader(__name__)

__all__ = [
    "DeltaSink",
    "IcebergSink",
]
