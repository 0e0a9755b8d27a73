"""Writes the tables of TPC-H or TPC-DS as Parquet files, and its queries as JSON: ``python tpc_data.py tpch DIRECTORY SCALE``.

Runs with an older DuckDB, for which the extensions that make them are Python packages.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb

GENERATORS = {"tpch": "dbgen", "tpcds": "dsdgen"}


def main(benchmark: str, directory: Path, scale: float) -> None:
    import duckdb_extensions

    duckdb_extensions.import_extension(benchmark)
    duckdb.execute(f"LOAD {benchmark}")
    duckdb.execute(f"CALL {GENERATORS[benchmark]}(sf={scale})")
    for (table,) in duckdb.execute("SHOW TABLES").fetchall():
        duckdb.execute(f"COPY {table} TO '{directory / table}.parquet'")
    queries = dict(duckdb.execute(f"SELECT query_nr, query FROM {benchmark}_queries()").fetchall())
    (directory / "queries.json").write_text(json.dumps(queries))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
