"""Writes the tables of TPC-H as Parquet files, and its queries as JSON: ``python tpch_data.py DIRECTORY SCALE``.

Runs with an older DuckDB, for which the extension that makes them is a Python package.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb


def main(directory: Path, scale: float) -> None:
    import duckdb_extensions

    duckdb_extensions.import_extension("tpch")
    duckdb.execute("LOAD tpch")
    duckdb.execute(f"CALL dbgen(sf={scale})")
    for (table,) in duckdb.execute("SHOW TABLES").fetchall():
        duckdb.execute(f"COPY {table} TO '{directory / table}.parquet'")
    queries = dict(duckdb.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())
    (directory / "queries.json").write_text(json.dumps(queries))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
