"""Changes an Iceberg table's rows by key: rewrites the files that contain them (copy on write), in one snapshot."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forkpoint.contract.source import JSON
from forkpoint_lakehouse.columns import DELETED, complete, without
from forkpoint_lakehouse.iceberg_files import columns_of, restore, write_tasks

_MAX_KEYS = 200  # to look up one by one in files' statistics


@dataclass(frozen=True)
class Rewrite:
    """The files to remove from and add to a table: pyiceberg's ``DataFile``s. ``written``: the paths of files written for the
    rewrite. ``replaced``: the paths of the staged files that they replace."""

    removed: list[Any] = field(default_factory=list)
    added: list[Any] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)

    def write(self, table: Any, rows: pa.Table) -> None:
        """Write and add files with these rows."""
        from pyiceberg.io.pyarrow import write_file

        if len(rows):
            tasks = write_tasks(table.metadata, rows, f"merged-{uuid.uuid4()}")
            files = list(write_file(table.io, table.metadata, iter(tasks)))
            self.added.extend(files)
            self.written.extend(file.file_path for file in files)


def added(table: Any, committables: Sequence[JSON]) -> Rewrite:
    """The files that an epoch adds. Rewrites a file that was written before the table was repartitioned or recreated."""
    found, now = Rewrite(), (table.metadata.default_spec_id, str(table.metadata.table_uuid))
    for each in committables:
        if (each["spec"], each["table"]) == now:
            found.added.append(restore(each))
            continue
        with table.io.new_input(each["path"]).open() as stream:
            rows = pq.read_table(pa.PythonFile(stream))
        found.write(table, complete(rows, columns_of(table.metadata)))
        found.replaced.append(each["path"])
    return found


def rewrite(table: Any, changes: pa.Table, key: Sequence[str]) -> Rewrite:
    """Write the files that result from an epoch's last change per key."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = columns_of(table.metadata)
    keys = complete(changes, schema).select(list(key))
    found = Rewrite()
    for task in table.scan(row_filter=_any_of(keys)).plan_files():
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        rows = scan.to_table([task])
        kept = without(rows, keys)
        if len(kept) < len(rows):
            found.removed.append(task.file)
            found.write(table, complete(kept, schema))
    there = changes.filter(pc.invert(changes.column(DELETED)))
    found.write(table, complete(there, schema))
    return found


def _any_of(keys: pa.Table) -> Any:
    """A filter that passes all files with any of these keys, and perhaps others."""
    from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, In, LessThanOrEqual

    ordered = [name for name in keys.column_names if not _has_nan(keys.column(name))]
    if not ordered:
        return AlwaysTrue()
    if keys.num_columns == 1 and len(keys) <= _MAX_KEYS:
        (name,) = keys.column_names
        return In(name, set(keys.column(name).to_pylist()))
    bounds = []
    for name in ordered:
        between = pc.min_max(keys.column(name)).as_py()
        bounds += [GreaterThanOrEqual(name, between["min"]), LessThanOrEqual(name, between["max"])]
    return And(*bounds)


def _has_nan(column: pa.ChunkedArray) -> bool:
    """Whether a column has NaN, which files' bounds do not cover."""
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())
