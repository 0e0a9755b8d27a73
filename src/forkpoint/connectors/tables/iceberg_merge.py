"""Changes of an Iceberg table's rows by key: files with such rows are rewritten (copy on write), in one snapshot."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.connectors.tables.columns import DELETED, complete, without
from forkpoint.connectors.tables.iceberg_files import columns_of, write_tasks

_MOST_KEYS = 200  # that are looked up in the statistics of files one by one


@dataclass(frozen=True)
class Rewrite:
    """The files to replace, and those with which. Both are pyiceberg's ``DataFile``s."""

    removed: list[Any]
    added: list[Any]


def rewrite(table: Any, changes: pa.Table, key: Sequence[str]) -> Rewrite:
    """Write the files that an epoch's last changes of each key lead to."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = columns_of(table.metadata)
    keys = complete(changes, schema).select(list(key))
    found = Rewrite([], [])
    for task in table.scan(row_filter=_any_of(keys)).plan_files():
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        rows = scan.to_table([task])
        kept = without(rows, keys)
        if len(kept) < len(rows):
            found.removed.append(task.file)
            found.added.extend(_write(table, complete(kept, schema)))
    there = changes.filter(pc.invert(changes.column(DELETED)))
    found.added.extend(_write(table, complete(there, schema)))
    return found


def _write(table: Any, rows: pa.Table) -> list[Any]:
    from pyiceberg.io.pyarrow import write_file

    if not len(rows):
        return []
    tasks = write_tasks(table.metadata, rows, f"merged-{uuid.uuid4()}")
    return list(write_file(table.io, table.metadata, iter(tasks)))


def _any_of(keys: pa.Table) -> Any:
    """A filter that files with any of these keys pass, and perhaps others."""
    from pyiceberg.expressions import And, GreaterThanOrEqual, In, LessThanOrEqual

    if keys.num_columns == 1 and len(keys) <= _MOST_KEYS:
        (name,) = keys.column_names
        return In(name, set(keys.column(name).to_pylist()))
    bounds = []
    for name in keys.column_names:
        between = pc.min_max(keys.column(name)).as_py()
        bounds += [GreaterThanOrEqual(name, between["min"]), LessThanOrEqual(name, between["max"])]
    return And(*bounds)
