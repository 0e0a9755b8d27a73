"""Databases' errors as forkpoint's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forkpoint.errors import ConfigError, ForkpointError, JobFailed, OutputRefused, SystemUnavailable

# PostgreSQL's SQLSTATEs, or the classes that they begin with, and MySQL's numbers.
_REFUSED = ("28", "3D000", "42501", 1044, 1045, 1049, 1142, 1698)
_UNFIT = ("42", "0A", 1054, 1072, 1136, 1146)
_TEMPORARY = (
    "08",
    "40",
    "53",
    "55",
    "57",
    "58",
    1021,
    1040,
    1053,
    1114,
    1203,
    1205,
    1213,
    1290,
    1836,
    1927,
    2002,
    2003,
    2006,
    2013,
    3024,
)
_REFUSES_ROW = ("P0001", 1153, 1292, 1366, 1644, 3819, 4025)  # a trigger, a check, a size
_DRIVERS = ("psycopg", "pymysql", "sqlite3")
_UNFIT_REMEDY = "Correct the table, or the fields of the stream's type"
_SQLITE_TEMPORARY = ("locked", "busy", "disk is full", "disk I/O")


@contextmanager
def raising_errors(what: str, unfit: str = _UNFIT_REMEDY) -> Iterator[None]:
    """Raise a driver's errors as forkpoint's: SystemUnavailable if a later attempt may succeed. ``what``: was done, and where.
    ``unfit``: what to do if the statement does not fit the tables.
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
    """Of a driver's error. PEP 249 fixes the names of the classes."""
    kinds = {each.__name__ for each in type(error).__mro__}
    said = f"{what}: {_first_lines(error)}"
    codes = _codes(error)
    if _matches(codes, _REFUSED) or _is_refusal(error):
        return ConfigError(f"{said}. Correct user, password and database of the URL, or grant the rights that are missing")
    if "IntegrityError" in kinds:
        return OutputRefused(
            f"{said}. Rows that exist already need an upsert; otherwise mend the rows, or the table's constraints"
        )
    if _matches(codes, _REFUSES_ROW):
        return OutputRefused(said)
    if _matches(codes, _UNFIT):
        return ConfigError(f"{said}. {unfit}")
    if is_disconnected or _matches(codes, _TEMPORARY):
        return SystemUnavailable(said)
    if not codes and kinds & {"OperationalError", "InterfaceError"} and _is_temporary(error):
        return SystemUnavailable(said)
    return OutputRefused(said) if "DataError" in kinds else JobFailed(said)


def _codes(error: Any) -> list[str | int]:
    """Its SQLSTATE and its number, as far as it has them: MySQL's states say less than its numbers."""
    state, first = getattr(error, "sqlstate", None), error.args[0] if error.args else None
    return [*([] if state is None else [str(state)]), *([first] if isinstance(first, int) else [])]


def _matches(codes: list[str | int], known: tuple[str | int, ...]) -> bool:
    classes = tuple(each for each in known if isinstance(each, str))
    return any(code.startswith(classes) if isinstance(code, str) else code in known for code in codes)


def _is_refusal(error: Any) -> bool:
    """libpq has no code for what happens before there is a session."""
    text = str(error)
    return "authentication failed" in text or "no password supplied" in text or ("database" in text and "does not exist" in text)


def _is_temporary(error: Any) -> bool:
    """Of errors without a code: SQLite's say so, PostgreSQL's are about connections."""
    module = type(error).__module__
    return not module.startswith("sqlite3") or any(word in str(error) for word in _SQLITE_TEMPORARY)


def _first_lines(error: Any) -> str:
    text = str(error.args[1] if len(error.args) > 1 and isinstance(error.args[0], int) else error)
    return "; ".join(line.strip() for line in text.splitlines()[:3] if line.strip())
