"""SQL over saved state: every state is a view. DuckDB reads verified Parquet files, those of a savepoint in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import duckdb
import pyarrow as pa

from forkpoint.errors import EditRefused, StateNotFound
from forkpoint.savepoint.layout import UniqueNames
from forkpoint.state_processor import sandbox
from forkpoint.state_processor.names import no_operator, no_state
from forkpoint.state_processor.query_limits import QueryLimits
from forkpoint.state_processor.state_rows import StateCollection, StateRows

S = TypeVar("S", bound=StateRows)

_DATABASE = "forkpoint_savepoint"
_RESERVED = ("temp", "system", "information_schema", "pg_catalog", _DATABASE)  # DuckDB's own catalogs and schemas


def views(saved: StateCollection[S]) -> dict[tuple[str, str], S]:
    """All states by schema (the uid) and view; a name that is taken gets a number as suffix."""
    schemas = UniqueNames(_RESERVED)
    by_uid = {uid: schemas.first_free(uid) for uid in saved.operators}
    inside = {uid: UniqueNames() for uid in by_uid}
    plain = sorted(saved.states, key=lambda state: state.is_timers)  # a state named "timers" keeps its name
    return {(by_uid[state.uid], inside[state.uid].first_free(state.name)): state for state in plain}


def query(saved: StateCollection[S], sql: str, limits: QueryLimits | None = None) -> pa.Table:
    """See ``StateCollection.query``. With ``limits``, at most one row more than these allow."""
    known = views(saved)
    with sandbox.connected(_DATABASE, limits) as (connection, scratch):
        try:
            by_lower_case = {(schema.lower(), name.lower()): (schema, name) for schema, name in known}
            needed: dict[tuple[str, str], list[str]] = {}
            for schema, name in sandbox.tables(connection, sql):
                found = by_lower_case.get((schema.lower(), name.lower()))
                if found is None and schema:
                    raise _unknown(saved.where, known, schema, name)
                if found is not None:
                    place = scratch / "-".join(found).replace("/", "-")
                    needed[found] = list(known[found].parquet_files(place))
            sandbox.lock(connection, [file for files in needed.values() for file in files])
            for found, files in needed.items():
                _create(connection, found, files)
            if limits is None:
                return connection.sql(sql).to_arrow_table()
            with sandbox.ended_after(connection, limits.seconds):
                return connection.sql(sql).limit(limits.rows + 1).to_arrow_table()
        except duckdb.PermissionException as error:
            raise EditRefused(f"the query may only read the states of {saved.where}: {error}") from error
        except duckdb.Error as error:
            if limits is not None and isinstance(error, duckdb.InterruptException | duckdb.OutOfMemoryException):
                raise EditRefused(_too_much(limits, error)) from error
            listed = ", ".join(f"{_quoted(s)}.{_quoted(n)}" for s, n in known) or "none"
            raise EditRefused(f"the query is invalid: {error}; the views of {saved.where} are {listed}") from error


def _too_much(limits: QueryLimits, error: duckdb.Error) -> str:
    slow = isinstance(error, duckdb.InterruptException)
    what = (
        f"took longer than {limits.seconds:g} s" if slow else f"needs more memory than {limits.memory_bytes >> 20} MiB"
    )
    return f"the query {what}, and was ended; ask for less, or run it with `forkpoint sql`, which has no limits"


def _create(connection: duckdb.DuckDBPyConnection, name: tuple[str, str], files: Sequence[str]) -> None:
    schema, view = name
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(schema)}").fetchall()
    connection.execute(
        f"CREATE VIEW {_quoted(schema)}.{_quoted(view)} AS SELECT * FROM read_parquet([{', '.join(map(_text, files))}])"
    ).fetchall()


def _unknown(where: str, known: Mapping[tuple[str, str], StateRows], schema: str, name: str) -> StateNotFound:
    schemas = {s for s, _ in known}
    if schema.lower() not in {s.lower() for s in schemas}:
        return no_operator(schema, schemas, where)
    return no_state(schema, name, [n for s, n in known if s.lower() == schema.lower()], where)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
