"""SQL over a savepoint: every state is a view. DuckDB reads the verified Parquet files in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from forkpoint.errors import EditRefused, StateNotFound
from forkpoint.savepoint.layout import UniqueNames
from forkpoint.state_processor import sandbox
from forkpoint.state_processor.names import no_operator, no_state
from forkpoint.storage.base import LocalStorage

if TYPE_CHECKING:
    from forkpoint.state_processor.reader import SavepointReader, StateReader

_DATABASE = "forkpoint_savepoint"
_RESERVED = ("temp", "system", "information_schema", "pg_catalog", _DATABASE)  # DuckDB's own catalogs and schemas


def views(savepoint: SavepointReader) -> dict[tuple[str, str], StateReader]:
    """All states by schema (the uid) and view; a name that is taken gets a number as suffix."""
    schemas = UniqueNames(_RESERVED)
    by_uid = {uid: schemas.first_free(uid) for uid in savepoint.operators}
    inside = {uid: UniqueNames() for uid in by_uid}
    plain = sorted(savepoint.states, key=lambda state: state.is_timers)  # a state named "timers" keeps its name
    return {(by_uid[state.uid], inside[state.uid].first_free(state.name)): state for state in plain}


def query(savepoint: SavepointReader, sql: str) -> pa.Table:
    """See ``SavepointReader.query``."""
    known = views(savepoint)
    with sandbox.connected(_DATABASE) as (connection, scratch):
        try:
            by_lower_case = {(schema.lower(), name.lower()): (schema, name) for schema, name in known}
            needed: dict[tuple[str, str], list[str]] = {}
            for schema, name in sandbox.tables(connection, sql):
                found = by_lower_case.get((schema.lower(), name.lower()))
                if found is None and schema:
                    raise _unknown(savepoint, known, schema, name)
                if found is not None:
                    place = scratch / "-".join(found).replace("/", "-")
                    needed[found] = list(_files(known[found], place))
            sandbox.lock(connection, [file for files in needed.values() for file in files])
            for found, files in needed.items():
                _create(connection, found, files)
            return connection.sql(sql).to_arrow_table()
        except duckdb.PermissionException as error:
            raise EditRefused(f"the query may only read the states of {savepoint.path}: {error}") from error
        except duckdb.Error as error:
            listed = ", ".join(f"{_quoted(s)}.{_quoted(n)}" for s, n in known) or "none"
            raise EditRefused(f"the query is invalid: {error}; the views of {savepoint.path} are {listed}") from error


def _create(connection: duckdb.DuckDBPyConnection, name: tuple[str, str], files: Sequence[str]) -> None:
    schema, view = name
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(schema)}").fetchall()
    connection.execute(
        f"CREATE VIEW {_quoted(schema)}.{_quoted(view)} AS SELECT * FROM read_parquet([{', '.join(map(_text, files))}])"
    ).fetchall()


def _files(state: StateReader, scratch: Path) -> Iterator[str]:
    """Verified files on this machine's disk: the savepoint's own, or copies if it is elsewhere."""
    storage = state.opened.storage
    every = [file for saved in state.saved for file in saved.files]
    filled = [file for file in every if file.entries] or every[:1]  # an empty one has the columns
    for number, file in enumerate(filled):
        ref = state.opened.file(file).ref
        data = ref.read(storage)
        place = str(Path(storage.root) / (ref.path or "")) if isinstance(storage, LocalStorage) else ""
        if place and not set("*?[").intersection(place):  # DuckDB would take it for a pattern
            yield place
        else:
            scratch.mkdir(exist_ok=True)
            copy = scratch / f"part-{number}.parquet"
            copy.write_bytes(data)
            yield str(copy)


def _unknown(
    savepoint: SavepointReader, known: dict[tuple[str, str], StateReader], schema: str, name: str
) -> StateNotFound:
    schemas = {s for s, _ in known}
    if schema.lower() not in {s.lower() for s in schemas}:
        return no_operator(schema, schemas, savepoint.path)
    return no_state(schema, name, [n for s, n in known if s.lower() == schema.lower()], savepoint.path)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
