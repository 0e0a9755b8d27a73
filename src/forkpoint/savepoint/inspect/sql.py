"""SQL over saved state: every state is a view of verified Parquet files, which DuckDB reads in place for savepoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa

from forkpoint.errors import EditRefused
from forkpoint.savepoint.format.layout import UniqueNames
from forkpoint.savepoint.inspect import sandbox
from forkpoint.savepoint.inspect.limited_query import View, run_within
from forkpoint.savepoint.inspect.names import no_operator, no_state
from forkpoint.savepoint.inspect.query_limits import QueryLimits
from forkpoint.savepoint.inspect.state_rows import StateCollection, StateRows

S = TypeVar("S", bound=StateRows)

_RESERVED = ("temp", "system", "information_schema", "pg_catalog")  # DuckDB's own catalogs and schemas


def views(saved: StateCollection[S]) -> dict[tuple[str, str], S]:
    """All states by schema (the uid) and view name; a name already in use gets a number as suffix."""
    schemas = UniqueNames(_RESERVED)
    by_uid = {uid: schemas.first_free(uid) for uid in saved.operators}
    inside = {uid: UniqueNames() for uid in by_uid}
    plain = sorted(saved.states, key=lambda state: state.is_timers)  # a state named "timers" keeps its name
    return {(by_uid[state.uid], inside[state.uid].first_free(state.name)): state for state in plain}


def query(saved: StateCollection[S], sql: str) -> pa.Table:
    """See ``StateCollection.query``."""
    known = views(saved)
    with sandbox.connected() as (connection, scratch), _refusing(saved.where, known):
        needed = _needed(saved.where, known, sandbox.tables(connection, sql), scratch)
        sandbox.lock(connection, [file for *_, files in needed for file in files])
        for schema, name, files in needed:
            sandbox.create_view(connection, schema, name, files)
        return connection.sql(sql).to_arrow_table()


def query_within(saved: StateCollection[S], sql: str, limits: QueryLimits) -> tuple[pa.Table, bool]:
    """See ``StateCollection.query_within``."""
    known = views(saved)
    with sandbox.connected() as (connection, scratch), _refusing(saved.where, known):
        needed = _needed(saved.where, known, sandbox.tables(connection, sql), scratch)
        return run_within(limits, sql, needed, scratch)


@contextmanager
def _refusing(where: str, known: Iterable[tuple[str, str]]) -> Iterator[None]:
    try:
        yield
    except duckdb.PermissionException as error:
        raise EditRefused(f"the query may only read the states of {where}: {error}") from error
    except duckdb.Error as error:
        listed = ", ".join(f"{sandbox.quoted(s)}.{sandbox.quoted(n)}" for s, n in known) or "none"
        raise EditRefused(f"the query is invalid: {error}; the views of {where} are {listed}") from error


def _needed(
    where: str, known: Mapping[tuple[str, str], StateRows], wanted: Iterable[tuple[str, str]], scratch: Path
) -> list[View]:
    """The views that a query names, ignoring case. Other names without a schema may be the query's own."""
    by_lower_case = {(schema.lower(), name.lower()): (schema, name) for schema, name in known}
    needed: dict[tuple[str, str], View] = {}
    for schema, name in wanted:
        found = by_lower_case.get((schema.lower(), name.lower()))
        if found is None and schema:
            names = [n for s, n in known if s.lower() == schema.lower()]
            raise no_state(schema, name, names, where) if names else no_operator(schema, {s for s, _ in known}, where)
        if found is not None and found not in needed:
            directory = scratch / "-".join(found).replace("/", "-")
            needed[found] = (*found, list(known[found].parquet_files(directory)))
    return list(needed.values())
