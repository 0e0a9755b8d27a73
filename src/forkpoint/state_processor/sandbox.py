"""DuckDB shut off from the machine: SQL that somebody else may have written reads the savepoint and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from forkpoint.errors import EditRefused

_CONFIG: dict[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
}
# A closed list: some of the others read files, some (arrow_scan, pandas_scan) take any number for an address in memory, and
# `query` takes SQL as a text that nobody has looked at.
_FUNCTIONS = frozenset(("generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"))


def connect(name: str, scratch: Path) -> duckdb.DuckDBPyConnection:
    """A database in memory that keeps what doesn't fit there in ``scratch``; ``shut`` it before foreign SQL runs."""
    return duckdb.connect(f":memory:{name}", config={**_CONFIG, "temp_directory": str(scratch)})


def shut(connection: duckdb.DuckDBPyConnection, files: Sequence[str] = ()) -> None:
    """From here on the connection reads these files, no others and no network, and nothing can change that."""
    connection.execute("SET allowed_paths = ?", [list(files)])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def tables(connection: duckdb.DuckDBPyConnection, sql: str) -> set[tuple[str, str]]:
    """The schema and name of every table in a query. Raises EditRefused if it is no SELECT, or calls table functions other
    than those that only make rows."""
    ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    parsed = json.loads(text)
    if parsed.get("error"):
        raise EditRefused(f"the query is wrong: {parsed.get('error_message')}; give one SELECT")
    found = set()
    for node in _nodes(parsed):
        if node.get("type") == "TABLE_FUNCTION":
            name = str(node["function"]["function_name"])
            if name.lower() not in _FUNCTIONS:
                raise EditRefused(
                    f"the query calls {name}(); it may read the savepoint's states only, and of the table functions use "
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
