"""DuckDB in a sandbox: SQL that somebody else may have written can read the savepoint and nothing else."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb

from forkpoint.errors import EditRefused
from forkpoint.state_processor.query_limits import QueryLimits

_CONFIG: dict[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
}
# Other functions read files, take any number as an address in memory (arrow_scan, pandas_scan), or SQL text that would not be
# checked (query).
_FUNCTIONS = frozenset(("generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"))


_INTERRUPT_S = 0.1  # DuckDB forgets an interrupt that comes before it has begun


@contextmanager
def connected(name: str = "", limits: QueryLimits | None = None) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """An in-memory database, and the scratch directory that it spills to; ``lock`` it before untrusted SQL runs."""
    with tempfile.TemporaryDirectory(prefix="forkpoint-sql-") as scratch:
        config = {**_CONFIG, "temp_directory": scratch, **({} if limits is None else limits.config)}
        with closing(duckdb.connect(f":memory:{name}", config=config)) as connection:
            yield connection, Path(scratch)


def lock(connection: duckdb.DuckDBPyConnection, files: Sequence[str] = ()) -> None:
    """Limit the connection to these files, without network access, for good."""
    connection.execute("SET allowed_paths = ?", [list(files)])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


@contextmanager
def ended_after(connection: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    """End what runs meanwhile on the connection once the time is over: it raises ``duckdb.InterruptException``."""
    done = threading.Event()

    def watch() -> None:
        if not done.wait(seconds):
            while not done.wait(_INTERRUPT_S):
                connection.interrupt()

    watching = threading.Thread(target=watch, name="forkpoint-sql-limit", daemon=True)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()


def tables(connection: duckdb.DuckDBPyConnection, sql: str) -> set[tuple[str, str]]:
    """The schema and name of every table in a query. Raises EditRefused if it is not a SELECT, or calls a table function
    that is not allowed."""
    ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    parsed = json.loads(text)
    if parsed.get("error"):
        raise EditRefused(f"the query is invalid: {parsed.get('error_message')}; give one SELECT")
    if not parsed.get("statements"):
        raise EditRefused("the query is empty; give one SELECT")
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
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
