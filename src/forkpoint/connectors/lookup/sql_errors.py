"""Errors of databases as forkpoint's."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from forkpoint.errors import ConfigError, ForkpointError, JobFailed, SystemUnavailable

# SQLSTATE, of PostgreSQL and others; MySQL's and MariaDB's numbers
_REFUSED_STATES = ("28", "42501", "3D000")
_REFUSED_NUMBERS = {1044, 1045, 1049, 1142, 1143, 1227, 1698, 1820, 3118}
_TEMPORARY_STATES = ("08", "40", "53", "55", "57", "58", "XX000")
_TEMPORARY_NUMBERS = {
    1040, 1041, 1053, 1077, 1078, 1129, 1152, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1226, 1290, 1317, 1927, 3024,
    *range(2000, 2060), 4031,
}  # fmt: skip
# What libpq says when it doesn't connect; it gives no SQLSTATE then.
_REFUSED = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry|authentication failed"
    r"|role \"[^\"]*\" does not exist|database \"[^\"]*\" does not exist|role \"[^\"]*\" is not permitted to log in"
    r"|permission denied for database"
)
_TEMPORARY_SQLITE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_PROTOCOL", "SQLITE_FULL", "SQLITE_NOMEM")


def database_error(error: Any, where: str) -> ForkpointError:
    """The error to raise for SQLAlchemy's: SystemUnavailable if the same may work later."""
    cause = getattr(error, "orig", None) or error
    said = " ".join(str(cause).split())
    state, number = getattr(cause, "sqlstate", None) or "", _number(cause)
    if state.startswith(_REFUSED_STATES) or number in _REFUSED_NUMBERS or (not state and _REFUSED.search(said)):
        return ConfigError(
            f"{where} refuses this user: {said}. Correct user, password and database in the URL, or grant the right to read"
        )
    if _is_temporary(error, cause, state, number):
        return SystemUnavailable(f"{where} does not work: {said}")
    return JobFailed(f"{where}: {said}; correct the query, the names of table and columns, or the type of the keys")


def _is_temporary(error: Any, cause: Any, state: str, number: int | None) -> bool:
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorname", "").startswith(_TEMPORARY_SQLITE)
    if getattr(error, "connection_invalidated", False) or isinstance(cause, OSError):
        return True
    if state:
        return state.startswith(_TEMPORARY_STATES)
    if number is not None:
        return number in _TEMPORARY_NUMBERS
    return type(cause).__name__ in ("OperationalError", "InterfaceError", "ConnectionTimeout")


def _number(cause: Any) -> int | None:
    args: tuple[Any, ...] = getattr(cause, "args", ())
    return args[0] if len(args) > 1 and isinstance(args[0], int) else None
