"""PostgreSQL change data capture."""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint_postgres_cdc.source import PostgresSource

__getattr__ = loader(__name__)

__all__ = [
    "PostgresSource",
]
