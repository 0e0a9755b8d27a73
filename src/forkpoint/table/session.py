"""Executes statements: keeps the catalogue, and adds the operators of queries and INSERTs to a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from forkpoint.api.configuration import parse_boolean
from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.api.streams.streams import DataStream
from forkpoint.config_file import DEFAULT_STATE_ROOT, state_root
from forkpoint.errors import ConfigError
from forkpoint.graph.options import RuntimeExecutionMode
from forkpoint.graph.specs import SinkSpec
from forkpoint.graph.transformations import Edge, Transformation, is_endless
from forkpoint.relational.bounds import until_end
from forkpoint.relational.expressions import Column, Item, items_of
from forkpoint.relational.lookups import LookupTable
from forkpoint.relational.operators.latest_rows import latest_rows
from forkpoint.relational.plan import ONE_ROW, Plan, Process, Scan, Select, is_sort, is_updating, keys_of, nodes_of
from forkpoint.relational.precision import as_it_runs, cut_columns
from forkpoint.relational.translation import Translator, free_name, ordered, selected, upserts
from forkpoint.relational.types import Field
from forkpoint.sql.alterations import AlterTable, AlterView, Rename
from forkpoint.sql.errors import Text, did_you_mean
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import CreateTable, CreateTableAs, CreateView, Drop, Insert, Query
from forkpoint.storage.places import absolute
from forkpoint.table.alterations import altered, like, with_key
from forkpoint.table.answers import Described
from forkpoint.table.api.settings import DIALECT, DUPLICATES, IDLE_TIMEOUT, STATE_TTL, TIME_ZONE, check_spelling
from forkpoint.table.catalog import Catalog, ProgramView, Space, StreamTable, View, read_with, use_of
from forkpoint.table.changelog_streams import as_changes, read_by
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.registry import connector_of, lookup_of, makes, ordering_key, sink_of, source_of, takes
from forkpoint.table.endless_state import warn_of_endless_state
from forkpoint.table.fitting import fitted, replaced_directory
from forkpoint.table.schema import Schema
from forkpoint.table.stored_definitions import refresh
from forkpoint.table.streams import one_row, stream_table
from forkpoint.table.watermarks import idle_timeout_of, with_watermarks
from forkpoint.wording import parse_duration_ms

_Source = tuple[str, tuple[tuple[str, str], ...]]
"""A table, and the options of a hint."""


@dataclass
class Session:
    """Statements on one environment. ``name``: the job's, set by ``SET 'pipeline.name'``. ``named_rows``: whether the rows of
    results have names."""

    env: StreamExecutionEnvironment
    catalog: Catalog = field(default_factory=Catalog)
    name: str | None = None
    inserted: list[str] = field(default_factory=list)
    named_rows: bool = True
    settings: dict[str, str] = field(default_factory=dict)
    idle_timeout_ms: int | None = None
    duplicates: bool = False
    ttl_ms: int | None = None
    _sources: dict[_Source, tuple[Edge, ...]] = field(default_factory=dict)
    _versions: dict[_Source, tuple[Edge, ...]] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _processes: dict[str, tuple[Process, tuple[Edge, ...]]] = field(default_factory=dict)
    _overwritten: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.catalog.states.place is None:
            self.catalog.states.place = partial(_state_root_of, self.env)
        self._initial = self.env.options, self.name

    def on(self, env: StreamExecutionEnvironment) -> Session:
        """The same tables and settings, for a job of another environment."""
        return replace(self, env=env, inserted=[], _sources={}, _versions={}, _names=set(), _processes={}, _overwritten=set())

    def forget_job(self) -> None:
        """Begin the next job: the operators so far belong to one that has been started."""
        self._sources.clear()
        self._versions.clear()
        self._names.clear()
        self._processes.clear()
        self._overwritten.clear()
        self.inserted = []

    # -- statements

    def create_table(self, statement: CreateTable) -> None:
        source, at = statement.source, statement.offsets[""]
        path = self.catalog.path(statement.name)
        if self._is_free(path, statement.if_not_exists, lambda problem: source.error(at, problem)):
            if statement.like is not None:
                statement = like(statement, self._table(statement.like.table, statement.like.at, source))
            self.catalog.tables[path] = self._bound(statement)
            self._read_anew(path)

    def defined(self, ddl: str) -> CreateTable:
        """The table of a CREATE TABLE statement, which is not created."""
        (table,) = parse(Text(ddl, "Table API"))
        assert isinstance(table, CreateTable)
        return self._bound(table)

    def _bound(self, table: CreateTable) -> CreateTable:
        """A definition with what its clauses mean, checked. Raises SqlError."""
        from forkpoint.sql.binding.reading import bound  # loads sqlglot

        table = bound(table, self.catalog.functions_in())
        connector_of(table)
        return table

    def create_table_as(self, statement: CreateTableAs) -> None:
        """Create a table with a query's columns, and add the operators that write the result into it."""
        table, query = statement.table, statement.query
        if table.if_not_exists and self.catalog.has(self.catalog.path(table.name)):
            return
        self.create_table(with_key(replace(table, schema=self.plan(query).schema), table.primary_key))
        try:
            self.insert(Insert(table.name, (), query, table.offsets[""]))
        except ConfigError:
            del self.catalog.tables[self.catalog.path(table.name)]
            raise

    def alter_table(self, statement: AlterTable) -> None:
        if statement.if_exists and self.catalog.path(statement.name) not in self.catalog.tables:
            return
        table = self._table(statement.name, statement.at, statement.source)
        path = self.catalog.path(statement.name)
        if path not in self.catalog.tables:
            raise statement.source.error(statement.at, f"table {statement.name!r} is saved state: its columns are the job's")
        match statement.change:
            case Rename(column=None, to=to):
                self._rename(self.catalog.tables, path, to, lambda problem: statement.source.error(statement.at, problem))
            case _:
                self.catalog.tables[path] = self._bound(altered(table, statement))
                self._read_anew(path)

    def create_view(self, statement: CreateView) -> None:
        source = statement.query.source
        path = self.catalog.path(statement.name)
        if self._is_free(path, statement.if_not_exists, lambda problem: source.error(statement.at, problem)):
            self._add_view(path, View(statement, self.catalog.current))

    def alter_view(self, statement: AlterView) -> None:
        path = self.catalog.path(statement.name)
        view = self.catalog.views.get(path)
        if view is None:
            raise statement.source.error(
                statement.at, f"there is no view {statement.name!r}; {did_you_mean(statement.name, self.catalog.views)}"
            )
        match statement.change:
            case Rename(to=to):
                self._rename(self.catalog.views, path, to, lambda problem: statement.source.error(statement.at, problem))
            case query:
                self._add_view(path, View(CreateView(statement.name, (), query, False, statement.at), self.catalog.current))

    def add_view(self, name: str, view: ProgramView) -> None:
        """Give a table of the program a name."""
        path = self.catalog.path(name)
        self._is_free(path, False, ConfigError)
        self.catalog.views[path] = view

    def _add_view(self, path: str, view: View) -> None:
        self._plan_of_view(path, view, ())  # finds mistakes
        self.catalog.views[path] = view

    def _rename(self, kind: dict[str, Any], path: str, to: str, error: Callable[[str], ConfigError]) -> None:
        space = path.rpartition(".")[0]
        new = self.catalog.path(to) if "." in to or not space else f"{space}.{to}"
        self._is_free(new, False, error)
        kind[new] = kind.pop(path)
        self._read_anew(new)

    def _read_anew(self, path: str) -> None:
        """A table has another definition now: later queries have a source of their own. That of earlier ones keeps its name."""
        for sources in (self._sources, self._versions):
            for name, options in [each for each in sources if each[0] == path]:
                sources[name, (*options, ("", str(len(sources))))] = sources.pop((name, options))

    def add_stream(self, name: str, stream: DataStream[Any], schema: Schema | None = None) -> None:
        """Make a stream a table of the catalogue, with the fields of its type as columns."""
        path = self.catalog.path(name)
        self._is_free(path, False, ConfigError)
        self.catalog.streams[path] = stream_table(name, stream, schema, self.catalog.functions_in())
        self._read_anew(path)

    def _is_free(self, path: str, if_not_exists: bool, error: Callable[[str], ConfigError]) -> bool:
        """Whether a table or view may be created there; False if there is one already, and that is no error."""
        problem = self.catalog.missing_space(path)
        if problem is not None:
            raise error(problem)
        if self.catalog.has(path) and not if_not_exists:
            raise error(f"there already is a table or view {path!r}; drop it first, or use IF NOT EXISTS")
        return not self.catalog.has(path)

    def drop(self, statement: Drop, source: Text) -> None:
        path = self.catalog.path(statement.name)
        if not self.catalog.drop(statement.kind, path) and not statement.if_exists:
            known = self.catalog.tables if statement.kind == "TABLE" else {**self.catalog.streams, **self.catalog.views}
            problem = f"there is no {statement.kind.lower()} {path!r}; {did_you_mean(path, known)}"
            raise source.error(statement.at, problem)

    def create_function(self, name: str, function: Any, *, system: bool, if_not_exists: bool = False) -> None:
        """Make a function of the program known by a name. Raises ConfigError."""
        path = name if system else self.catalog.path(name)
        self.catalog.functions.create(path, function, system=system, if_not_exists=if_not_exists)

    def drop_function(self, name: str, *, system: bool) -> str | None:
        """Forget a function; returns what is wrong with that, if anything."""
        functions, path = self.catalog.functions, name if system else self.catalog.path(name)
        return None if functions.drop(path, system=system) else functions.unknown(path, system=system)

    def set(self, key: str, value: str) -> None:
        """Change an option of the job, by Flink's keys. Raises ConfigError."""
        if key == "pipeline.name":
            self.name = value
        elif key == DUPLICATES:
            self.duplicates = parse_boolean(key, value)
            self._sources.clear()  # which read tables in another way then
        elif key == IDLE_TIMEOUT:
            self.idle_timeout_ms = parse_duration_ms(key, value) or None
        elif key == STATE_TTL:
            self.ttl_ms = parse_duration_ms(key, value) or None
        elif key == TIME_ZONE and value not in ("UTC", "Etc/UTC", "Z", "default"):
            raise ConfigError(f"{key}: times are read and printed in UTC, not in {value!r}")
        elif key == DIALECT and value.lower() != "default":
            raise ConfigError(f"{key}: SQL has Flink's dialect here, not {value!r}; leave the option out")
        else:
            check_spelling(key)
            self.env.configure({key: value})
        self.settings[key] = value

    def reset(self, key: str | None) -> None:
        """Undo SET, for one option or for all."""
        kept = {name: value for name, value in self.settings.items() if key is not None and name != key}
        self.env.options, self.name = self._initial
        self.idle_timeout_ms, self.duplicates, self.ttl_ms = None, False, None
        self.settings.clear()
        for name, value in kept.items():
            self.set(name, value)

    # -- queries

    def load_catalogs(self) -> None:
        """Read the catalogues that are kept under the state root, once."""
        if not self.catalog.stored.loaded:
            refresh(self)

    def plan(self, query: Query, given: Mapping[str, Plan] = MappingProxyType({})) -> Plan:
        """The plan of a query. ``given``: tables of the program, by their names in it. Raises SqlError."""
        self.load_catalogs()
        return self._plan(query, None, (), given)

    def _plan(
        self,
        query: Query,
        space: Space | None,
        within: tuple[str, ...],
        given: Mapping[str, Plan] = MappingProxyType({}),
    ) -> Plan:
        """``space``: where names are looked up. ``within``: the views whose query this is part of."""
        from forkpoint.sql.binding.queries import bind_query  # loads sqlglot

        def find(name: str, options: Mapping[str, str] = MappingProxyType({})) -> Plan | None:
            if name in given and not options:
                return given[name]
            path = self.catalog.path(name, space)
            if path in within and not options:
                raise query.source.error(query.start, f"view {path!r} would read itself")
            view = self.catalog.views.get(path)
            if isinstance(view, View) and not options:
                return self._plan_of_view(path, view, within)
            known = name if name in self.catalog.unnamed else path
            plan = read_with(self.catalog, known, options) if options else self.catalog.read(known)
            if plan is None and (problem := self.catalog.states.missing(path)):
                raise query.source.error(query.source.text.find(path.rpartition(".")[2], query.start), problem)
            return plan

        return bind_query(query, find, self.catalog.written, self.catalog.functions_in(space))

    def _plan_of_view(self, path: str, view: View, within: tuple[str, ...]) -> Plan:
        statement = view.statement
        plan = _without_sort(self._plan(statement.query, view.space, (*within, path)), statement.query)
        if not statement.columns:
            return plan
        if len(statement.columns) != len(plan.schema):
            problem = f"view {path!r} names {len(statement.columns)} columns, its query has {len(plan.schema)}"
            raise statement.query.source.error(statement.at, problem)
        pairs = zip(statement.columns, plan.schema, strict=True)
        return Select(plan, None, tuple(Item(name, Column(column.name, column.type)) for name, column in pairs))

    def described(self, name: str, at: int, source: Text) -> Described:
        """A table or view as queries see it. Raises SqlError if there is none."""
        path = self.catalog.path(name)
        view = self.catalog.views.get(path)
        if isinstance(view, View):
            return Described(self._plan_of_view(path, view, ()).schema)
        table = None if view is not None or path in self.catalog.streams else self._table(name, at, source)
        plan = self.catalog.read(path)
        assert plan is not None
        return Described(plan.schema, table)

    def _table(self, name: str, at: int, source: Text) -> CreateTable:
        path = self.catalog.path(name)
        table = self.catalog.table(path) or self.catalog.unnamed.get(name)
        if not isinstance(table, CreateTable):
            problem = self.catalog.states.missing(path)
            raise source.error(at, problem or f"there is no table {name!r}; {did_you_mean(name, self.catalog.written())}")
        return table

    def stream(self, plan: Plan, name: str = "query") -> DataStream[Any]:
        """The changes of a query's result."""
        edges = self._translated(plan, free_name(name, self._names))
        return DataStream(self.env, edges, edges[0].upstream.output_type)

    def _translated(self, plan: Plan, name: str) -> tuple[Edge, ...]:
        functions = self.catalog.functions.by_identity
        return Translator(self._source, name, self._lookup, functions, self._processes, self.ttl_ms).translate(as_it_runs(plan))

    def plan_of_insert(self, statement: Insert, given: Mapping[str, Plan] = MappingProxyType({})) -> tuple[CreateTable, Plan]:
        """The table that an INSERT writes, and what it writes. Raises SqlError."""
        table = self._table(statement.table, statement.at, statement.query.source)
        table = table.with_options(statement.options)
        plan = fitted(_without_sort(self.plan(statement.query, given), statement.query), table, statement)
        final = statement.overwrites or self.env.options.runtime_mode is RuntimeExecutionMode.BATCH
        return table, until_end(plan) if final and is_updating(plan) and takes(table) == "added" else plan

    def insert(self, statement: Insert, given: Mapping[str, Plan] = MappingProxyType({})) -> None:
        """Add the operators that write a query's result into a table. ``given``: as of ``plan``."""
        source, name = statement.query.source, self.catalog.path(statement.table)
        table, plan = self.plan_of_insert(statement, given)
        if name in (self.inserted if statement.overwrites else self._overwritten):
            raise source.error(statement.at, f"a job that overwrites table {name!r} has one INSERT into it; use UNION ALL")
        job_name = free_name(name, self._names)
        partition = replaced_directory(table, statement)
        sink = sink_of(table, job_name.removeprefix(name), overwrites=statement.overwrites, partition=partition)
        updating, taken = is_updating(plan), takes(table)
        if updating and taken == "added":
            raise source.error(
                statement.at,
                f"table {name!r} ({table.options['connector']}) takes added rows only, but this query also changes rows that "
                "it has written before; use a connector that takes changes, such as 'upsert-kafka' or 'print', or SET "
                "'execution.runtime-mode' = 'batch' if its input ends",
            )
        end = self._translated(plan, job_name)
        if statement.overwrites and is_endless(end):
            raise source.error(statement.at, "INSERT OVERWRITE is for queries whose input ends; bound it, or use INSERT INTO")
        warn_of_endless_state(f"INSERT INTO {name}", end, self.settings)
        if updating and taken == "upserts":
            self._check_key(plan, table, statement)
            end = upserts(end, as_it_runs(plan), table.primary_key)
            if connector_of(table).as_changes:
                end = as_changes(end, table.schema)
        elif updating and (key := ordering_key(table)):
            end = ordered(end, as_it_runs(plan), key)
        self.env.add_operator(Transformation(SinkSpec(sink), f"insert into {name}", end, None, uid=f"{job_name}-sink"))
        self.inserted.append(name)
        if statement.overwrites:
            self._overwritten.add(name)

    def _check_key(self, plan: Plan, table: CreateTable, statement: Insert) -> None:
        keys = keys_of(plan)
        if not any(key <= set(table.primary_key) for key in keys):
            shown = ", ".join(table.primary_key)
            of = " or ".join(", ".join(sorted(key)) or "query" for key in keys)
            by = f"one row for each {of}" if keys else "no key that the result keeps"
            raise statement.query.source.error(
                statement.at,
                f"the primary key of table {table.name!r} is ({shown}), but the query has {by}; insert all columns of a "
                "key, such as those of GROUP BY, and make them the primary key",
            )

    def _lookup(self, scan: Scan, key: tuple[str, ...]) -> LookupTable:
        table = self.catalog.source(scan)
        if not isinstance(table, CreateTable):
            raise ConfigError(f"{scan.table!r} is a stream, which finds no rows by a key; join without FOR SYSTEM_TIME")
        if table.reading is not None and table.reading.once:
            name = table.reading.once[0].name
            raise ConfigError(f"column {name!r} of {scan.table!r} has another value each time; a lookup join has no such column")
        return lookup_of(table, key)

    def _source(self, scan: Scan) -> tuple[Edge, ...]:
        """The rows of a table: its changes, or all of its versions as they come."""
        of = scan.table, scan.options
        if scan.table == ONE_ROW.table:
            return self._sources.setdefault(of, one_row())
        if of not in self._sources:
            table, known = self.catalog.source(scan), [each for each, _ in self._sources if each == scan.table]
            name, label = f"{scan.table}-{len(known) + 1}" if known else scan.table, use_of(scan)
            idle_timeout_ms, changes = self.idle_timeout_ms, table.makes if isinstance(table, StreamTable) else makes(table)
            if isinstance(table, StreamTable):
                edges = table.edges
            else:
                edges = read_by(source_of(table), name, label, table.read_schema, changes)
                idle_timeout_ms = idle_timeout_of(table, idle_timeout_ms)
            schema, once = table.read_schema, () if table.reading is None else table.reading.once
            cut = cut_columns(schema)
            if cut:
                edges = selected(edges, (None, cut), schema, weighted=changes != "added")
            if once:
                if changes != "added":
                    problem = (
                        f"column {once[0].name!r} of table {scan.table!r} has another value each time, but its rows also change"
                    )
                    raise ConfigError(f"{problem}; compute it in a query")
                items = (*items_of(schema), *once)
                schema = tuple(Field(item.name, item.of.type) for item in items)
                edges = selected(edges, (None, items), schema, weighted=False)
            watermark = None if table.reading is None else table.reading.watermark
            if watermark is not None and watermark.delay_ms is not None:
                updating = changes != "added"
                edges = with_watermarks(edges, name, label, schema, watermark, idle_timeout_ms, updating=updating)
            self._versions[of] = edges if changes != "all" else ()
            if changes == "upserts" or (changes == "all" and self.duplicates):
                edges = latest_rows(edges, name, label, schema, _key_of(table, name), self.ttl_ms)
            self._sources[of] = edges
        found = (self._versions if scan.versions else self._sources)[of]
        if not found:
            raise ConfigError(
                f"table {scan.table!r}: a temporal join takes rows that are added, or upserts by the primary key, not changes"
            )
        return found


def _state_root_of(env: StreamExecutionEnvironment) -> str:
    return absolute(env.options.state_root or env.launch.state_root or state_root() or DEFAULT_STATE_ROOT)


def _without_sort(plan: Plan, query: Query) -> Plan:
    """The plan of a query whose result is read as it comes. Raises SqlError if it is sorted once its input has ended."""
    if any(map(is_sort, nodes_of(plan))):
        problem = "ORDER BY needs LIMIT here, or event time as its first column, ascending: the changes of a result have no order"
        raise query.source.error(query.start, problem)
    return plan


def _key_of(table: CreateTable | StreamTable, name: str) -> tuple[str, ...]:
    if table.primary_key:
        return table.primary_key
    problem = f"table {name!r} needs PRIMARY KEY (…) NOT ENFORCED, by which its latest rows are kept"
    raise ConfigError(problem) if isinstance(table, StreamTable) else TableOptions(table).error("", problem)
