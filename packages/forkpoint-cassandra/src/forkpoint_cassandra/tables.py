"""Tables of SQL with ``'connector' = 'cassandra'``."""

from __future__ import annotations

from typing import Any

from forkpoint.errors import ConfigError
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.registry import Connector
from forkpoint.types import TypeInformation
from forkpoint_cassandra.committer import CONCURRENCY
from forkpoint_cassandra.sink import CassandraSink
from forkpoint_cassandra.table import look_up


class CassandraTableSink(CassandraSink[Any]):
    """``columns``, ``key``: of the table in SQL, whose primary key must be that of the table in Cassandra: rows are updated and
    deleted by it."""

    def __init__(self, *place: Any, columns: tuple[str, ...], key: tuple[str, ...], **options: Any) -> None:
        super().__init__(*place, **options)
        self._columns, self._key = columns, key

    def check_type(self, type: TypeInformation[Any]) -> None:
        statements = look_up(self._name).statements
        key = statements.columns[: statements.keys]
        if missing := [name for name in self._columns if name not in statements.columns]:
            has = f"it has {', '.join(statements.columns)}"
            raise ConfigError(
                f"CassandraSink: {self._name} has no column {missing[0]!r}; {has}. Add it, or correct the table in SQL"
            )
        if set(key) != set(self._key):
            raise ConfigError(
                f"CassandraSink: the primary key of {self._name} is ({', '.join(key)}), but the one in SQL is "
                f"({', '.join(self._key)}); make them the same"
            )


def _sink(options: TableOptions) -> CassandraTableSink:
    table = options.table
    return CassandraTableSink(
        [host.strip() for host in options.required("hosts").split(";")],
        options.required("keyspace"),
        options.required("table-name"),
        columns=tuple(field.name for field in table.schema),
        key=table.primary_key,
        username=options.get("username"),
        password=options.get("password"),
        consistency=options.get("consistency") or "LOCAL_QUORUM",
        local_datacenter=options.get("local-datacenter"),
        concurrency=options.number("concurrency", CONCURRENCY),
    )


CONNECTOR = Connector(None, _sink, "upserts", as_changes=True, keyed=True)
