"""Executes statements: keeps the catalogue, and adds the operators of queries and INSERTs to a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from forkpoint.api.configuration import parse_duration_ms
from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.api.streams.streams import DataStream
from forkpoint.errors import ConfigError
from forkpoint.functions import WatermarkStrategy
from forkpoint.graph.specs import SinkSpec, SourceSpec
from forkpoint.graph.transformations import Edge, Forward, KeyBy, Transformation
from forkpoint.relational.changes import row_type
from forkpoint.relational.expressions import Call, Column, Expression, Item, Literal
from forkpoint.relational.plan import Plan, Select, is_updating, keys_of
from forkpoint.relational.translation import Translator, free_name, upserts
from forkpoint.relational.types import Field, SqlType, widens
from forkpoint.sql.errors import Text, did_you_mean
from forkpoint.sql.statements import CreateTable, CreateView, Drop, Insert, Query, Set
from forkpoint.table.catalog import Catalog, StreamTable, plain_name
from forkpoint.table.connectors.registry import connector_of, sink_of, source_of
from forkpoint.table.schema import Schema, reading_of
from forkpoint.table.streams import table_of
from forkpoint.table.watermarks import IDLE_TIMEOUT, idle_timeout_of, with_watermarks


@dataclass
class Session:
    """Statements on one environment. ``name``: the job's, set by ``SET 'pipeline.name'``."""

    env: StreamExecutionEnvironment
    catalog: Catalog = field(default_factory=Catalog)
    name: str | None = None
    inserted: int = 0
    idle_timeout_ms: int | None = None
    _sources: dict[str, tuple[Edge, ...]] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def forget_job(self) -> None:
        """Begin the next job: the operators so far belong to one that has been started."""
        self._sources.clear()
        self._names.clear()
        self.inserted = 0

    # -- statements

    def create_table(self, statement: CreateTable) -> None:
        self._check_free(
            statement.name, statement.if_not_exists, lambda problem: statement.source.error(statement.offsets[""], problem)
        )
        connector_of(statement)
        self.catalog.tables.setdefault(plain_name(statement.name), statement)

    def create_view(self, statement: CreateView) -> None:
        source = statement.query.source
        self._check_free(statement.name, statement.if_not_exists, lambda problem: source.error(statement.at, problem))
        plan = self.plan(statement.query)
        if statement.columns:
            if len(statement.columns) != len(plan.schema):
                raise source.error(
                    statement.at,
                    f"view {statement.name!r} names {len(statement.columns)} columns, its query has {len(plan.schema)}",
                )
            pairs = zip(statement.columns, plan.schema, strict=True)
            plan = Select(plan, None, tuple(Item(name, Column(column.name, column.type)) for name, column in pairs))
        self.catalog.views.setdefault(plain_name(statement.name), plan)

    def add_stream(self, name: str, stream: DataStream[Any], schema: Schema | None = None) -> None:
        """Make a stream a table of the catalogue, with the fields of its type as columns."""
        edges = tuple(replace(e, partitioning=Forward()) if isinstance(e.partitioning, KeyBy) else e for e in stream.edges)
        fields, edges = table_of(name, stream.get_type(), edges)
        self._check_free(name, False, lambda problem: ConfigError(problem))
        reading = None if schema is None else reading_of(schema, fields)
        self.catalog.streams[plain_name(name)] = StreamTable(fields, edges, reading)

    def _check_free(self, name: str, if_not_exists: bool, error: Callable[[str], ConfigError]) -> None:
        if self.catalog.has(name) and not if_not_exists:
            raise error(f"there already is a table or view {plain_name(name)!r}; drop it first, or use IF NOT EXISTS")

    def drop(self, statement: Drop, source: Text) -> None:
        problem = self.catalog.drop(statement)
        if problem is not None:
            raise source.error(statement.at, problem)

    def set(self, statement: Set) -> None:
        """Change an option of the job, by Flink's keys. Raises ConfigError."""
        assert statement.key is not None
        if statement.key == "pipeline.name":
            self.name = statement.value
            return
        if statement.key == IDLE_TIMEOUT:
            self.idle_timeout_ms = parse_duration_ms(statement.key, statement.value) or None
            return
        self.env.configure({statement.key: statement.value})

    # -- queries

    def plan(self, query: Query) -> Plan:
        from forkpoint.sql.queries import bind_query  # loads sqlglot

        return bind_query(query, self.catalog.find, self.catalog.names)

    def stream(self, plan: Plan, name: str = "query") -> DataStream[Any]:
        """The changes of a query's result."""
        edges = Translator(self._source, free_name(name, self._names)).translate(plan)
        return DataStream(self.env, edges, edges[0].upstream.output_type)

    def insert(self, statement: Insert) -> None:
        """Add the operators that write a query's result into a table."""
        source, name = statement.query.source, plain_name(statement.table)
        table = self.catalog.tables.get(name)
        if table is None:
            suggestion = did_you_mean(name, self.catalog.tables)
            raise source.error(statement.at, f"there is no table {name!r}; {suggestion}")
        plan = _fitted(self.plan(statement.query), table, statement)
        connector, sink = connector_of(table), sink_of(table)
        updating = is_updating(plan)
        if updating and connector.takes == "added":
            raise source.error(
                statement.at,
                f"table {name!r} ({table.options['connector']}) takes added rows only, but this query also changes rows that "
                "it has written before; use a connector that takes changes, such as 'upsert-kafka' or 'print'",
            )
        job_name = free_name(name, self._names)
        end = Translator(self._source, job_name).translate(plan)
        if updating and connector.takes == "upserts":
            self._check_key(plan, table, statement)
            end = upserts(end, table.primary_key)
        self.env.add_operator(Transformation(SinkSpec(sink), f"insert into {name}", end, None, uid=f"{job_name}-sink"))
        self.inserted += 1

    def _check_key(self, plan: Plan, table: CreateTable, statement: Insert) -> None:
        keys = keys_of(plan)
        if not any(key <= set(table.primary_key) for key in keys):
            shown = ", ".join(table.primary_key)
            of = " or ".join(", ".join(sorted(key)) or "query" for key in keys)
            by = f"one row for each {of}" if keys else "no key that the result keeps"
            raise statement.query.source.error(
                statement.at,
                f"the primary key of table {table.name!r} is ({shown}), but the query has {by}; insert the columns of GROUP BY, "
                "and make them the primary key",
            )

    def _source(self, name: str) -> tuple[Edge, ...]:
        if name not in self._sources:
            table = self.catalog.streams.get(name) or self.catalog.tables[name]
            idle_timeout_ms = self.idle_timeout_ms
            if isinstance(table, StreamTable):
                edges = table.edges
            else:
                spec = SourceSpec(source_of(table), WatermarkStrategy.no_watermarks())
                edges = (Edge(Transformation(spec, f"table {name}", (), row_type(table.schema), uid=name)),)
                idle_timeout_ms = idle_timeout_of(table, idle_timeout_ms)
            watermark = None if table.reading is None else table.reading.watermark
            if watermark is not None and watermark.delay_ms is not None:
                edges = with_watermarks(edges, name, table.schema, watermark, idle_timeout_ms)
            self._sources[name] = edges
        return self._sources[name]


def _fitted(plan: Plan, table: CreateTable, statement: Insert) -> Plan:
    """The query's columns as the table's: by position, converted as INSERT does."""
    source = statement.query.source
    fields = {each.name: each for each in table.schema}
    computed = set() if table.reading is None else {item.name for item in table.reading.columns} - fields.keys()
    for column in statement.columns:
        if column in computed:
            raise source.error(statement.at, f"column {column!r} of table {table.name!r} is computed: it cannot be written")
        if column not in fields:
            raise source.error(statement.at, f"table {table.name!r} has no column {column!r}; {did_you_mean(column, fields)}")
    targets = statement.columns or tuple(fields)
    if len(targets) != len(plan.schema):
        raise source.error(
            statement.query.start,
            f"the query has {len(plan.schema)} columns ({', '.join(each.name for each in plan.schema)}), but table "
            f"{table.name!r} takes {len(targets)} ({', '.join(targets)})",
        )
    given = {
        target: _converted(Column(each.name, each.type), fields[target], source, statement)
        for target, each in zip(targets, plan.schema, strict=True)
    }
    null = SqlType("NULL")
    items = []
    for target in table.schema:
        found = given.get(target.name)
        if found is not None and found.type.nullable and not target.type.nullable:
            name = Literal(f"{target.name!r} of table {table.name!r}", SqlType("STRING", nullable=False))
            found = Call("NOT NULL", (found, name), target.type)
        if found is None:
            if not target.type.nullable:
                raise source.error(statement.at, f"column {target.name!r} of table {table.name!r} is NOT NULL, but gets no value")
            found = Call("CAST", (Literal(None, null),), target.type)
        items.append(Item(target.name, found))
    return Select(plan, None, tuple(items))


def _converted(value: Column, target: Field, source: Text, statement: Insert) -> Expression:
    wanted, given = target.type, value.type
    if given.same_values(wanted):
        return value
    if not widens(given, wanted):
        raise source.error(
            statement.query.start,
            f"column {value.name!r} of the query is {given.label}, but column {target.name!r} of the table is {wanted.label}; "
            f"use CAST({value.name} AS {wanted.label})",
        )
    return Call("CAST", (value,), wanted.with_null(given.nullable))
