"""Converts databases' errors to forkpoint's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forkpoint.errors import ConfigError, ForkpointError, JobFailed, OutputRefused, SystemUnavailable

# PostgreSQL's SQLSTATEs, or the classes that they begin with, and MySQL's numbers.
_REFUSED = ("28", "3D000", "42501", 1044, 1045, 1049, 1142, 1698)
_UNFIT = ("42", "0A", 1054, 1072, 1136, 1146)
_TEMPORARY_STATES = ("08", "40", "53", "55", "57", "58")
_TEMPORARY_NUMBERS = (1021, 1040, 1053, 1114, 1203, 1205, 1213, 1290, 1836, 1927, 2002, 2003, 2006, 2013, 3024)
_TEMPORARY = (*_TEMPORARY_STATES, *_TEMPORARY_NUMBERS)
_REFUSES_ROW = ("P0001", 1153, 1292, 1366, 1644, 3819, 4025)  # a trigger, a check, a size
_DRIVERS = ("psycopg", "pymysql", "sqlite3")
_UNFIT_REMEDY = "Correct the table, or the fields of the stream's type"
_SQLITE_TEMPORARY = ("locked", "busy", "disk is full", "disk I/O")


@contextmanager
def raising_errors(what: str, unfit: str = _UNFIT_REMEDY) -> Iterator[None]:
    """Convert a driver's errors: SystemUnavailable if a later attempt may succeed. ``what`` names the action and the database.
    ``unfit``: the remedy if the statement does not fit the tables.
    """
    from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError

    try:
        yield
    except DBAPIError as error:
        raise _translated(error.orig, what, unfit, error.connection_invalidated) from error
    except NoSuchModuleError as error:
        raise ConfigError(f"{what}: {error}") from error
    except SQLAlchemyError as error:
        raise JobFailed(f"{what}: {error}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _DRIVERS:
            raise
        raise _translated(error, what, unfit, False) from error  # COPY bypasses SQLAlchemy


def _translated(error: Any, what: str, unfit: str, is_disconnected: bool) -> ForkpointError:
    """The error for a driver's. PEP 249 defines the names of the classes."""
    kinds = {base.__name__ for base in type(error).__mro__}
    text = str(error)
    # SQLSTATE and number, if any: MySQL's states are less specific than its numbers.
    state, number = getattr(error, "sqlstate", None), error.args[0] if error.args else None
    codes: list[str | int] = [*([] if state is None else [str(state)]), *([number] if isinstance(number, int) else [])]
    reason = str(error.args[1]) if len(error.args) > 1 and isinstance(number, int) else text
    message = f"{what}: {'; '.join(line.strip() for line in reason.splitlines()[:3] if line.strip())}"
    # libpq has no codes for errors before the session starts.
    is_denied = any(words in text for words in ("authentication failed", "no password supplied"))
    if _matches(codes, _REFUSED) or is_denied or ("database" in text and "does not exist" in text):
        return ConfigError(f"{message}. Correct user, password and database of the URL, or grant the rights that are missing")
    if "IntegrityError" in kinds:
        return OutputRefused(
            f"{message}. Rows that exist already need an upsert; otherwise correct the rows, or the table's constraints"
        )
    if _matches(codes, _REFUSES_ROW):
        return OutputRefused(message)
    if _matches(codes, _UNFIT):
        return ConfigError(f"{message}. {unfit}")
    if is_disconnected or _matches(codes, _TEMPORARY):
        return SystemUnavailable(message)
    if not codes and kinds & {"OperationalError", "InterfaceError"}:  # PostgreSQL's errors without a code concern connections
        is_sqlite = type(error).__module__.startswith("sqlite3")
        if not is_sqlite or any(word in text for word in _SQLITE_TEMPORARY):
            return SystemUnavailable(message)
    return OutputRefused(message) if "DataError" in kinds else JobFailed(message)


def _matches(codes: list[str | int], known: tuple[str | int, ...]) -> bool:
    classes = tuple(code for code in known if isinstance(code, str))
    return any(code.startswith(classes) if isinstance(code, str) else code in known for code in codes)
