"""Converts PostgreSQL's errors to forkpoint's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from forkpoint.errors import ConfigError, ForkpointError, InputLost, JobFailed, SystemUnavailable

if TYPE_CHECKING:
    import psycopg

_PASSWORD = ("28P01", "28000")
_DENIED = "42501"
_IN_USE = "55006"
_LIMIT = "53400"
_NAMES = ("3D000", "42P01", "42601", "42602", "0A000")  # unknown or malformed names of databases and tables
_TEMPORARY_CLASSES = ("08", "53", "57", "58")  # connection, resources, operator intervention, system
_TEMPORARY = (_IN_USE, "40001", "40P01", "55P03", "25P03")
_CONNECT_REFUSALS = ("authentication failed", "no pg_hba.conf entry", "password", "does not exist", "SSL")


def is_temporary(error: psycopg.Error) -> bool:
    """Whether the same request may succeed later."""
    import psycopg

    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not _is_refused(error)
    return state != _LIMIT and (state in _TEMPORARY or state[:2] in _TEMPORARY_CLASSES)


def _is_refused(error: psycopg.Error) -> bool:
    """Whether the server rejects this client. Connection errors have no SQLSTATE."""
    text = str(error)
    return any(f"FATAL:  {what}" in text or what in text.partition("FATAL:")[2] for what in _CONNECT_REFUSALS)


def forkpoint_error(error: psycopg.Error, what: str) -> ForkpointError:
    """The error to raise if ``what`` failed: SystemUnavailable if a retry may succeed, otherwise an error with a remedy."""
    said = _message(error)
    if error.sqlstate in _PASSWORD or (error.sqlstate is None and _is_refused(error)):
        return ConfigError(
            f"{what}: {said}. Correct user, password and dbname of the connection string, or admit this user in pg_hba.conf"
        )
    if is_temporary(error):
        return SystemUnavailable(f"{what} does not work: {said}")
    if error.sqlstate == _DENIED:
        return ConfigError(
            f"{what}: {said}. The user needs REPLICATION and SELECT on the tables: "
            "ALTER ROLE … REPLICATION; GRANT SELECT ON … TO …"
        )
    if "wal_level" in said:
        return ConfigError(f"{what}: {said}. Set wal_level = logical in postgresql.conf and restart the server")
    if "all replication slots are in use" in said:
        return ConfigError(
            f"{what}: {said}. Drop unused slots (SELECT slot_name FROM pg_replication_slots WHERE NOT active; "
            "SELECT pg_drop_replication_slot('…')), or raise max_replication_slots"
        )
    if error.sqlstate == "55000" and "replication slot" in said:
        return InputLost(
            f"{what}: {said}. Raise max_slot_wal_keep_size, drop the slot, and give the source a new uid to "
            "read the tables afresh"
        )
    if error.sqlstate == "42704" and "replication slot" in said:
        return InputLost(f"{what}: {said}: it was dropped. Give the source a new uid to read the tables afresh")
    if error.sqlstate == "42704" and "publication" in said:
        return InputLost(
            f"{what}: {said}, or did not exist when changes were made. Create it, and give the source a new uid to "
            "read the tables afresh"
        )
    if error.sqlstate in _NAMES:
        return ConfigError(f"{what}: {said}. Correct the name: a table's is schema.table, quoted as in SQL")
    return JobFailed(f"{what}: {said} ({error.sqlstate})")


def _message(error: psycopg.Error) -> str:
    diagnostics = error.diag
    text = diagnostics.message_primary or " ".join(str(error).split()) or type(error).__name__
    return f"{text}; {diagnostics.message_detail}" if diagnostics.message_detail else text


@contextmanager
def raising_errors(what: str) -> Iterator[None]:
    """Convert the client's errors to forkpoint's."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise forkpoint_error(error, what) from error


def of_source(error: ForkpointError, uid: str | None) -> ForkpointError:
    """The error with the source's name. A source that is not part of a job has no uid."""
    named = type(error)(f"PostgresSource: {error}" if uid is None else f"PostgresSource {uid!r}: {error}")
    named.__cause__ = error.__cause__
    return named


@contextmanager
def naming(uid: str | None) -> Iterator[None]:
    """Add the source's name to forkpoint's errors."""
    try:
        yield
    except ForkpointError as error:
        named = of_source(error, uid)
        raise named from named.__cause__
