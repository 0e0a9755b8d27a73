"""Tables of SQL with ``'connector' = 'delta'`` and ``'connector' = 'iceberg'``, by the options of Flink's connectors."""

from __future__ import annotations

from typing import Any, TypedDict

from forkpoint.contract.source import Source
from forkpoint.table.connectors.keyed import changes_by_key
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.registry import Connector
from forkpoint_lakehouse.delta import DeltaSink
from forkpoint_lakehouse.delta_reading import DeltaVersions
from forkpoint_lakehouse.iceberg import IcebergSink
from forkpoint_lakehouse.iceberg_reading import IcebergSnapshots
from forkpoint_lakehouse.sink import Mode
from forkpoint_lakehouse.source import TableSource


class _Rows(TypedDict):
    mode: Mode
    key: tuple[str, ...]
    partition_by: tuple[str, ...]


def _rows(options: TableOptions) -> _Rows:
    """With a primary key, rows are replaced by it."""
    key = options.table.primary_key
    return {"mode": "upsert" if key else "append", "key": key, "partition_by": options.table.partitions}


_VERSION, _SNAPSHOT = "versionAsOf", "snapshot-id"


def _delta_source(options: TableOptions) -> Source[Any]:
    table = DeltaVersions.of(options.required("table-path"), options.prefixed("storage."))
    return TableSource(table, options.row_type, options.number(_VERSION))


def _iceberg_source(options: TableOptions) -> Source[Any]:
    return TableSource(IcebergSnapshots.of(*_place(options)), options.row_type, options.number(_SNAPSHOT))


def _delta(options: TableOptions) -> DeltaSink[object]:
    options.ignore(_VERSION)
    return DeltaSink(options.required("table-path"), storage_options=options.prefixed("storage."), **_rows(options))


def _iceberg(options: TableOptions) -> IcebergSink[object]:
    options.ignore(_SNAPSHOT)
    return IcebergSink(*_place(options), **_rows(options))


def _place(options: TableOptions) -> tuple[dict[str, str], str]:
    """The catalogue's properties, and the table's name there."""
    given = {"name": options.get("catalog-name"), "type": options.get("catalog-type")}
    given |= {name: options.get(name) for name in ("uri", "warehouse")} | options.prefixed("properties.")
    properties = {name: value for name, value in given.items() if value is not None}
    table = f"{options.get('catalog-database', 'default')}.{options.get('catalog-table', options.table.name)}"
    return properties, table


DELTA = Connector(_delta_source, _delta, changes_by_key, as_changes=True, has_partitions=True)
ICEBERG = Connector(_iceberg_source, _iceberg, changes_by_key, as_changes=True, has_partitions=True)
