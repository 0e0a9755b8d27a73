"""The connectors that tables may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from forkpoint.connectors.sinks import DiscardSink
from forkpoint.contract.sink import Sink
from forkpoint.contract.source import Source
from forkpoint.errors import ConfigError
from forkpoint.relational.lookups import LookupTable
from forkpoint.sql.errors import SqlError, did_you_mean
from forkpoint.sql.statements import CreateTable
from forkpoint.table.connectors.files import file_sink, file_source
from forkpoint.table.connectors.formats import changes_by_format
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.printing import ChangelogPrintSink

_PACKAGES = "forkpoint.tables"
"""The entry points of packages: names of connectors, with a Connector each."""
_SAME_NAME = ("delta", "iceberg", "kinesis", "rabbitmq", "mqtt", "redis", "cassandra", "opensearch")
_EXTRAS = {"postgres-cdc": "postgres", **{name: name for name in _SAME_NAME}}
Changes = str | Callable[[TableOptions], str]


@dataclass(frozen=True)
class Connector:
    """``takes``: the changes that its sink can take: "added" rows only, "upserts" (the row of each primary key), or "all".
    ``makes``: those that its source has. Both may depend on options. A source may have Changes as elements; with ``as_changes``,
    so has the sink. ``keyed``: it needs a primary key. ``has_metadata``: of messages, for columns. ``has_partitions``: it takes
    PARTITIONED BY. ``replaces``: INSERT OVERWRITE. ``lookup``: finds rows by a key, of these columns. ``keys``: the columns whose
    values say where its sink writes a change."""

    source: Callable[[TableOptions], Source[Any]] | None = None
    sink: Callable[[TableOptions], Sink[Any]] | None = None
    takes: Changes = "added"
    makes: Changes = "added"
    as_changes: bool = False
    keyed: bool = False
    has_metadata: bool = False
    has_partitions: bool = False
    replaces: bool = False
    lookup: Callable[[TableOptions, tuple[str, ...]], LookupTable] | None = None
    keys: Callable[[TableOptions], tuple[str, ...]] = lambda options: ()


def _kafka_source(options: TableOptions) -> Source[Any]:
    from forkpoint.table.connectors.kafka import kafka_source

    return kafka_source(options)


def _kafka_sink(options: TableOptions) -> Sink[Any]:
    from forkpoint.table.connectors.kafka import kafka_sink

    return kafka_sink(options)


def _kafka_keys(options: TableOptions) -> tuple[str, ...]:
    from forkpoint.table.connectors.kafka import key_fields

    return tuple(field.name for field in key_fields(options))


def _upsert_kafka_source(options: TableOptions) -> Source[Any]:
    from forkpoint.table.connectors.kafka import upsert_kafka_source

    return upsert_kafka_source(options)


def _upsert_kafka_sink(options: TableOptions) -> Sink[Any]:
    from forkpoint.table.connectors.kafka import upsert_kafka_sink

    return upsert_kafka_sink(options)


def _jdbc_source(options: TableOptions) -> Source[Any]:
    from forkpoint.table.connectors.jdbc_source import jdbc_source

    return jdbc_source(options)


def _jdbc_sink(options: TableOptions) -> Sink[Any]:
    from forkpoint.table.connectors.jdbc import jdbc_sink

    return jdbc_sink(options)


def _jdbc_lookup(options: TableOptions, key: tuple[str, ...]) -> LookupTable:
    from forkpoint.table.connectors.lookups import jdbc_lookup

    return jdbc_lookup(options, key)


def _datagen_source(options: TableOptions) -> Source[Any]:
    from forkpoint.table.connectors.datagen import datagen_source

    return datagen_source(options)


def _state_source(options: TableOptions) -> Source[Any]:
    from forkpoint.table.connectors.state import state_source

    return state_source(options)


CONNECTORS: Mapping[str, Connector] = {
    "kafka": Connector(_kafka_source, _kafka_sink, changes_by_format, changes_by_format, has_metadata=True, keys=_kafka_keys),
    "upsert-kafka": Connector(_upsert_kafka_source, _upsert_kafka_sink, "upserts", "upserts", keyed=True, has_metadata=True),
    "datagen": Connector(_datagen_source),
    "jdbc": Connector(_jdbc_source, _jdbc_sink, "upserts", as_changes=True, lookup=_jdbc_lookup),
    "filesystem": Connector(file_source, file_sink, makes=changes_by_format, has_partitions=True, replaces=True),
    "print": Connector(None, lambda options: ChangelogPrintSink(options.get("print-identifier", "") or ""), "all"),
    "blackhole": Connector(None, lambda options: DiscardSink(), "all"),
    "state": Connector(_state_source),
}


def connector_of(table: CreateTable) -> Connector:
    """The connector of a table. Raises SqlError."""
    options = TableOptions(table)
    name = table.options.get("connector")
    if name is None:
        raise options.error("", f"table {table.name!r} has no connector; add WITH ('connector' = '…'): {', '.join(CONNECTORS)}")
    found = CONNECTORS.get(name) or next((entry.load() for entry in entry_points(group=_PACKAGES, name=name)), None)
    if not isinstance(found, Connector):
        if name in _EXTRAS:
            raise options.error("connector", f'connector {name!r} is in a package: pip install "forkpoint[{_EXTRAS[name]}]"')
        raise options.error("connector", f"there is no connector {name!r}; {did_you_mean(name, [*CONNECTORS, *_EXTRAS])}")
    if table.partitions and not found.has_partitions:
        raise options.error("connector", f"connector {name!r} has no partitions; leave out PARTITIONED BY")
    return found


def makes(table: CreateTable) -> str:
    """The changes that reading a table has: "added" rows only, "upserts" by its primary key, or "all"."""
    return _of(connector_of(table).makes, TableOptions(table))


def takes(table: CreateTable) -> str:
    """The changes that can be written into a table, by the same words."""
    return _of(connector_of(table).takes, TableOptions(table))


def ordering_key(table: CreateTable) -> tuple[str, ...]:
    """The columns by whose values the changes in a table stay in order; none if they need not."""
    return connector_of(table).keys(TableOptions(table)) or table.primary_key


def _of(changes: Changes, options: TableOptions) -> str:
    return changes if isinstance(changes, str) else changes(options)


def source_of(table: CreateTable) -> Source[Any]:
    connector = connector_of(table)
    options = TableOptions(table)
    if connector.source is None:
        name = table.options["connector"]
        joined = ", except in a lookup join: JOIN … FOR SYSTEM_TIME AS OF o.proc_time" if connector.lookup else ""
        raise options.error("connector", f"connector {name!r} writes tables; it cannot read table {table.name!r}{joined}")
    if not connector.has_metadata:
        options.check_metadata({})
    _check(connector, options)
    with _at(table):
        source = connector.source(options)
    options.finish()
    return source


def lookup_of(table: CreateTable, key: tuple[str, ...]) -> LookupTable:
    """``key``: the columns by which its rows are looked up."""
    connector, options = connector_of(table), TableOptions(table)
    if connector.lookup is None:
        name, known = table.options["connector"], [name for name, each in CONNECTORS.items() if each.lookup]
        problem = f"connector {name!r} finds no rows by a key; a lookup join needs {' or '.join(map(repr, known))}"
        raise options.error("connector", f"{problem}. Join without FOR SYSTEM_TIME, or with that of an event time")
    found = connector.lookup(options, key)
    options.finish()
    return found


def sink_of(table: CreateTable, nth: str = "", *, overwrites: bool = False, partition: str = "") -> Sink[Any]:
    """``nth``: tells apart the sinks of several INSERTs into the table. ``overwrites``, ``partition``: as of TableOptions."""
    connector = connector_of(table)
    options = TableOptions(table, nth, overwrites=overwrites, partition=partition)
    if connector.sink is None:
        name = table.options["connector"]
        raise options.error("connector", f"connector {name!r} reads tables; it cannot write table {table.name!r}")
    if overwrites and not connector.replaces:
        name = table.options["connector"]
        raise options.error("connector", f"connector {name!r} cannot replace the rows of a table; use INSERT INTO")
    _check(connector, options)
    written = [column.name for column in table.metadata if not column.virtual]
    if written:
        raise options.error("", f"metadata column {written[0]!r} cannot be written; declare it VIRTUAL")
    with _at(table):
        sink = connector.sink(options)
    options.finish()
    return sink


@contextmanager
def _at(table: CreateTable) -> Iterator[None]:
    """Says where the table is whose options a connector's own checks refuse."""
    try:
        yield
    except SqlError:
        raise
    except ConfigError as error:
        raise TableOptions(table).error("", f"table {table.name!r}: {error}") from error


def _check(connector: Connector, options: TableOptions) -> None:
    table = options.table
    for changes in (connector.makes, connector.takes):
        _of(changes, options)  # reads options of both directions
    if connector.keyed and not table.primary_key:
        name = table.options["connector"]
        raise options.error("", f"table {table.name!r} needs PRIMARY KEY (…) NOT ENFORCED for connector {name!r}")
