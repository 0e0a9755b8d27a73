"""Connections to PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forkpoint.errors import ConfigError

if TYPE_CHECKING:
    import psycopg

CONNECT_S = 10

# Settings that determine how the server writes values as text, and no timeouts that would end a waiting session.
_SETTINGS = """
SET client_encoding = 'UTF8'; SET datestyle = 'ISO, YMD'; SET intervalstyle = 'postgres'; SET timezone = 'UTC';
SET extra_float_digits = 1; SET bytea_output = 'hex'; SET xmlbinary = 'base64'; SET statement_timeout = 0;
SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET synchronize_seqscans = off;
SET max_parallel_workers_per_gather = 0
"""


@dataclass(frozen=True)
class Database:
    """A database, by libpq's connection string, which may contain a password."""

    conninfo: str = field(repr=False)

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection in autocommit mode. Raises psycopg's errors."""
        import psycopg

        given = psycopg.conninfo.conninfo_to_dict(self.conninfo)
        defaults = {
            "connect_timeout": CONNECT_S,
            "application_name": "forkpoint",
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,
        }
        connection = psycopg.connect(**{**defaults, **given}, autocommit=True)
        connection.prepare_threshold = None
        connection.execute(_SETTINGS)
        return connection

    @property
    def place(self) -> str:
        """The server and database, without secrets, for messages."""
        import psycopg

        try:
            given = psycopg.conninfo.conninfo_to_dict(self.conninfo)
        except psycopg.Error as error:
            said = " ".join(str(error).split())
            why = f": {said}" if said.startswith("invalid connection option") else ""  # other messages may quote the password
            raise ConfigError(
                f"conninfo is not a connection string of libpq{why}. Write it as 'host=… dbname=…' or 'postgresql://…'"
            ) from None
        host = given.get("host") or given.get("hostaddr") or "the default host"
        port = f":{given['port']}" if given.get("port") else ""
        return f"PostgreSQL at {host}{port}, database {given.get('dbname') or 'by default'}"
