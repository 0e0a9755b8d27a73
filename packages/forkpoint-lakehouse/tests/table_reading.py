"""Reading tables back, and running small jobs that write to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import forkpoint as fp
from forkpoint.api.execution import Job, prepare
from forkpoint.api.launch import Launch
from forkpoint.graph.options import RestartStrategy
from table_jobs import build, catalog


def iceberg(place: Path) -> Any:
    return load_catalog("default", **catalog(str(place))).load_table("ns.counts")


def table(kind: str, place: Path) -> pa.Table:
    return DeltaTable(place).to_pyarrow_table() if kind == "delta" else iceberg(place).scan().to_arrow()


def read(kind: str, place: Path) -> list[dict[str, Any]]:
    return in_order(table(kind, place).to_pylist())


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, in some order that depends on them only."""
    return sorted(rows, key=lambda row: str(list(row.values())))


def rows(kind: str, place: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table(kind, place).to_pylist())


def files(kind: str, place: Path) -> list[str]:
    """The data files of the newest version."""
    if kind == "delta":
        return list(DeltaTable(place).file_uris())
    return [task.file.file_path.removeprefix("file://") for task in iceberg(place).scan().plan_files()]


def job(root: Path, to: Any, elements: int, *, name: str = "counting", parallelism: int = 2, **options: Any) -> Job:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(parallelism)
    env.options = replace(env.options, restart=options.pop("restart", RestartStrategy.none()))
    build(env, elements, to)
    env.launch = Launch(options={"engine": "local"}, **options)
    return prepare(env, name)


def run(root: Path, to: Any, elements: int, **options: Any) -> Any:
    return job(root, to, elements, **options).begin()()


def sunk(root: Path, elements: list[Any], type: Any, sink: Any, per_epoch: int = 1000, name: str = "users") -> Any:
    """Write elements to a sink."""
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_max_epoch_rows(per_epoch)
    env.options = replace(env.options, restart=RestartStrategy.none())
    env.from_collection(elements, type).uid("elements").sink_to(sink).uid("table")
    env.launch = Launch(options={"engine": "local"})
    return prepare(env, name).begin()()
