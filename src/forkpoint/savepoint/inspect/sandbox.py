"""Runs DuckDB in a sandbox: untrusted SQL can read the savepoint and nothing else."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa

from forkpoint.errors import EditRefused
from forkpoint.savepoint.inspect.query_limits import QueryLimits
from forkpoint.types import from_description
from forkpoint.types.readable import plain

_CONFIG: dict[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
}
# Other functions read files, use any number as a memory address (arrow_scan, pandas_scan), or run unchecked SQL text (query).
_FUNCTIONS = frozenset(("generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"))


@contextmanager
def connected(limits: QueryLimits | None = None) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """An in-memory database, and the scratch directory that it spills to; ``lock`` it before you run untrusted SQL."""
    # Connections with the same name share a database and its settings. The name is also a catalog, which no schema may have.
    name = f":memory:{uuid.uuid4().hex}"
    with tempfile.TemporaryDirectory(prefix="forkpoint-sql-") as scratch:
        config = {**_CONFIG, "temp_directory": scratch, **({} if limits is None else limits.config)}
        with closing(duckdb.connect(name, config=config)) as connection:
            connection.create_function("any_json", _any_json, ["BLOB"], "VARCHAR", type="arrow")  # type: ignore[call-overload]
            yield connection, Path(scratch)


def _any_json(values: pa.Array) -> pa.Array:
    """Values of `Types.ANY()` as JSON."""
    decode = from_description({"kind": "any"}).decode
    found = (None if value is None else plain(decode(value)) for value in values.to_pylist())
    return pa.array([None if value is None else msgspec.json.encode(value).decode() for value in found], pa.string())


def lock(connection: duckdb.DuckDBPyConnection, files: Sequence[str] = ()) -> None:
    """Limit the connection permanently to these files, without network access."""
    connection.execute("SET allowed_paths = ?", [list(files)])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def create_view(connection: duckdb.DuckDBPyConnection, schema: str, name: str, files: Sequence[str]) -> None:
    """A view of Parquet files."""
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}").fetchall()
    connection.execute(f"CREATE VIEW {quoted(schema)}.{quoted(name)} AS SELECT * FROM read_parquet([{listed}])").fetchall()


def quoted(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def tables(connection: duckdb.DuckDBPyConnection, sql: str) -> set[tuple[str, str]]:
    """The schema and name of every table in a query. Raises EditRefused if it is not a SELECT, or calls a forbidden table
    function."""
    ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    parsed = json.loads(text)
    if parsed.get("error"):
        error = str(parsed.get("error_message"))
        raise EditRefused(
            "the query may only read: give one SELECT"
            if "Only SELECT" in error
            else f"the query is invalid: {error}; give one SELECT"
        )
    statements = parsed.get("statements") or []
    if len(statements) != 1:
        raise EditRefused(f"the query {'is empty' if not statements else 'has several statements'}; give one SELECT")
    found = set()
    for node in _nodes(parsed):
        if node.get("type") == "TABLE_FUNCTION":
            name = str(node["function"]["function_name"])
            if name.lower() not in _FUNCTIONS:
                raise EditRefused(
                    f"the query calls {name}(); it may only read the savepoint's states, and use the table functions "
                    f"{', '.join(sorted(_FUNCTIONS))}"
                )
        if "table_name" in node and "schema_name" in node:
            found.add((node["schema_name"], node["table_name"]))
    return found


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    pending = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            yield each
            pending.extend(each.values())
        elif isinstance(each, list):
            pending.extend(each)
