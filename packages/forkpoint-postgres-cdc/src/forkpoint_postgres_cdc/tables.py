"""Tables of SQL with ``'connector' = 'postgres-cdc'``, by the options of Flink's connector."""

from __future__ import annotations

from collections.abc import Mapping

from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.registry import Connector
from forkpoint_postgres_cdc.source import PostgresSource

_REFUSED = {
    "slot.name": "the slot is named after the job",
    "scan.incremental.snapshot.enabled": "rows are always read in parts, several at a time",
}
_MODES: Mapping[str, str] = {"all": "all", "upsert": "upserts"}


def _source(options: TableOptions) -> PostgresSource:
    from psycopg.conninfo import make_conninfo

    options.refuse(_REFUSED)
    options.choice("decoding.plugin.name", ("pgoutput",), "pgoutput")
    conninfo = make_conninfo(
        host=options.required("hostname"),
        port=options.number("port", 5432),
        user=options.required("username"),
        password=options.get("password"),
        dbname=options.required("database-name"),
    )
    return PostgresSource(
        conninfo,
        [f"{options.get('schema-name', 'public')}.{options.required('table-name')}"],
        options.get("debezium.publication.name") or "dbz_publication",
        options.row_type,
        snapshot=options.choice("scan.startup.mode", ("initial", "latest-offset"), "initial") == "initial",
        split_size=options.number("scan.snapshot.fetch.size", 10_000) or 1,
        is_bounded=options.choice("scan.bounded.mode", ("unbounded", "latest-offset"), "unbounded") == "latest-offset",
    )


def _makes(options: TableOptions) -> str:
    return _MODES[options.choice("changelog-mode", tuple(_MODES), "all")]


CONNECTOR = Connector(_source, makes=_makes)
