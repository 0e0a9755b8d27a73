"""Tables of SQL with ``'connector' = 'delta'`` and ``'connector' = 'iceberg'``, by the options of Flink's connectors."""

from __future__ import annotations

from typing import TypedDict

from forkpoint.table.connectors.keyed import changes_by_key
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.registry import Connector
from forkpoint_lakehouse.delta import DeltaSink
from forkpoint_lakehouse.iceberg import IcebergSink
from forkpoint_lakehouse.sink import Mode


class _Rows(TypedDict):
    mode: Mode
    key: tuple[str, ...]
    partition_by: tuple[str, ...]


def _rows(options: TableOptions) -> _Rows:
    """With a primary key, rows are replaced by it."""
    key = options.table.primary_key
    return {"mode": "upsert" if key else "append", "key": key, "partition_by": options.table.partitions}


def _delta(options: TableOptions) -> DeltaSink[object]:
    return DeltaSink(options.required("table-path"), storage_options=options.prefixed("storage."), **_rows(options))


def _iceberg(options: TableOptions) -> IcebergSink[object]:
    given = {"name": options.get("catalog-name"), "type": options.get("catalog-type")}
    given |= {name: options.get(name) for name in ("uri", "warehouse")} | options.prefixed("properties.")
    properties = {name: value for name, value in given.items() if value is not None}
    table = f"{options.get('catalog-database', 'default')}.{options.get('catalog-table', options.table.name)}"
    return IcebergSink(properties, table, **_rows(options))


DELTA = Connector(None, _delta, changes_by_key, as_changes=True, has_partitions=True)
ICEBERG = Connector(None, _iceberg, changes_by_key, as_changes=True, has_partitions=True)
