"""Table environments: tables, and statements of SQL about them, in a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Self

from forkpoint.api.configuration import Configuration
from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.api.streams.streams import DataStream
from forkpoint.errors import ConfigError, GraphError
from forkpoint.functions.sql import ScalarFunction
from forkpoint.relational.changes import row_type
from forkpoint.relational.plan import is_updating
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import CreateTableAs, Drop, Insert, Query
from forkpoint.table.api.catalogs import Catalog, CatalogDescriptor
from forkpoint.table.api.elements import RowSchema, check_types, frame_rows, rows_of
from forkpoint.table.api.expression import Expression
from forkpoint.table.api.pipelines import StatementSet, started
from forkpoint.table.api.results import Change, TableResult
from forkpoint.table.api.settings import EnvironmentSettings, TableConfig
from forkpoint.table.api.table import Table, with_fields, written_as
from forkpoint.table.api.table_descriptor import TableDescriptor
from forkpoint.table.catalog import ProgramView, StreamTable
from forkpoint.table.changelog_streams import ChangelogMode, changelog_table
from forkpoint.table.data_types import fields_of
from forkpoint.table.endless_state import warn_of_endless_state
from forkpoint.table.functions import PythonFunction
from forkpoint.table.schema import Schema
from forkpoint.table.session import Session
from forkpoint.table.statements import execute
from forkpoint.table.streams import stream_table

Settings = EnvironmentSettings | Configuration


class TableEnvironment:
    """Tables and views by name, and jobs over them. Created with ``create``."""

    environment = StreamExecutionEnvironment
    _named_rows = True

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self._session = Session(env, named_rows=self._named_rows)

    @classmethod
    def create(cls, environment_settings: Settings | None = None) -> Self:
        """A table environment with settings."""
        return cls(_configured(cls.environment.get_execution_environment(), environment_settings))

    # -- SQL

    def execute_sql(self, stmt: str) -> TableResult:
        """Execute one statement, or a statement set. INSERT starts a job in the background; a query runs when its result is
        collected or printed; SHOW, DESCRIBE, SET and EXPLAIN have rows.

        SqlError, a ConfigError, for a statement that is not valid.
        """
        session, source = self._session, Text(stmt)
        statements = list(parse(source))
        if len(statements) != 1 and not (statements and all(isinstance(each, Insert) for each in statements)):
            raise GraphError(f"execute_sql() takes one statement, not {len(statements)}; call it for each")
        if isinstance(statements[0], Query):
            return Table(session, session.plan(statements[0])).execute()
        answers = [execute(session, each, source) for each in statements]
        if isinstance(statements[0], Insert | CreateTableAs) and session.inserted:
            return started(session)
        return TableResult(answer=answers[0])

    def create_temporary_function(self, path: str, function: PythonFunction | ScalarFunction | Callable[..., Any]) -> None:
        """Give a function made by ``udf()`` a name in SQL, in a database; functions with type hints need no ``udf()``.

        SQL's own functions of the same name precede it.
        """
        self._session.create_function(path, function, system=False)

    def create_temporary_system_function(self, name: str, function: PythonFunction | ScalarFunction | Callable[..., Any]) -> None:
        """Give a function made by ``udf()`` a name in SQL, in all databases. It precedes SQL's own of the same name."""
        self._session.create_function(name, function, system=True)

    def drop_temporary_function(self, path: str) -> bool:
        """Forget a function of a database. Returns whether there was one."""
        return self._session.drop_function(path, system=False) is None

    def drop_temporary_system_function(self, name: str) -> bool:
        """Forget a function of all databases. Returns whether there was one."""
        return self._session.drop_function(name, system=True) is None

    def list_user_defined_functions(self) -> list[str]:
        """The names of the functions of this program."""
        return list(self._session.catalog.functions.names())

    def sql_query(self, query: str) -> Table:
        """The result of a query. SqlError if it is not valid."""
        statements = list(parse(Text(query)))
        if len(statements) != 1 or not isinstance(statements[0], Query):
            raise GraphError("sql_query() takes one query: SELECT …; use execute_sql() for other statements")
        return Table(self._session, self._session.plan(statements[0]))

    def explain_sql(self, stmt: str, *extra_details: Any) -> str:
        """The plan of a query or INSERT as text. SqlError if it is not valid."""
        (row,) = self.execute_sql(f"EXPLAIN {stmt}").collect()
        return str(row[0])

    def create_statement_set(self) -> StatementSet:
        """Several INSERTs that run as one job."""
        return StatementSet(self._session)

    # -- tables

    def from_path(self, path: str) -> Table:
        """A table or view by its name. SqlError if there is none."""
        return self.sql_query(f"SELECT * FROM {path}")

    def from_elements(self, elements: Iterable[Any], schema: RowSchema = None, verify_schema: bool = True) -> Table:
        """A table of given rows. ``schema``: ``DataTypes.ROW`` with the columns, or their names; by default, names and types are
        those of the elements. ``verify_schema``: whether values of other types raise WrongType, not just an error of the job."""
        rows, of = rows_of(elements, schema)
        fields = fields_of(of)
        if verify_schema:
            check_types(rows, fields)

        def table(name: str) -> StreamTable:
            return StreamTable(fields, self._session.env.from_collection(rows, row_type(fields)).uid(name).edges)

        return self._read(self._session.catalog.add_unnamed("elements", table))

    def from_pandas(self, pdf: Any, schema: RowSchema = None, splits_num: int = 1) -> Table:
        """A table of the rows of a pandas DataFrame. ``schema``: as of ``from_elements``."""
        return self.from_elements(*frame_rows(pdf, schema), verify_schema=False)

    def from_descriptor(self, descriptor: TableDescriptor) -> Table:
        """A table that has no name in SQL."""
        return self._read(
            self._session.catalog.add_unnamed("table", lambda name: self._session.defined(descriptor.ddl(f"TABLE {name}")))
        )

    def create_temporary_table(self, path: str, descriptor: TableDescriptor, ignore_if_exists: bool = False) -> None:
        """Create a table, as CREATE TEMPORARY TABLE does. SqlError if it is not valid."""
        self.execute_sql(descriptor.ddl(f"TEMPORARY TABLE {'IF NOT EXISTS ' * ignore_if_exists}{path}"))

    def create_table(self, path: str, descriptor: TableDescriptor, ignore_if_exists: bool = False) -> None:
        """Create a table, as CREATE TABLE does: a catalogue that is kept under the state root has it then."""
        self.execute_sql(descriptor.ddl(f"TABLE {'IF NOT EXISTS ' * ignore_if_exists}{path}"))

    def create_temporary_view(
        self, view_path: str, table_or_data_stream: Table | DataStream[Any], *fields_or_schema: Any
    ) -> None:
        """Give a table or stream a name in SQL. A stream is a table of added rows, with the fields of its type as columns.

        ``fields_or_schema``: of a stream, as in ``from_data_stream``.
        """
        if isinstance(table_or_data_stream, Table):
            self._session.add_view(view_path, ProgramView(table_or_data_stream._plan))
        elif fields_or_schema and not isinstance(fields_or_schema[0], Schema):
            self.create_temporary_view(view_path, self._stream(table_or_data_stream, fields_or_schema))
        else:
            self._session.add_stream(view_path, table_or_data_stream, *fields_or_schema)

    def _stream(self, stream: DataStream[Any], given: tuple[Any, ...]) -> Table:
        """A stream as a table. ``given``: a Schema, or its columns."""
        schema = given[0] if given and isinstance(given[0], Schema) else None
        functions = self._session.catalog.functions_in()
        table = self._read(
            self._session.catalog.add_unnamed("stream", lambda name: stream_table(name, stream, schema, functions))
        )
        return table if schema is not None else with_fields(table, given)

    def create_view(self, view_path: str, table: Table) -> None:
        """Give a table a name in SQL."""
        self.create_temporary_view(view_path, table)

    def _read(self, name: str) -> Table:
        plan = self._session.catalog.read(name)
        assert plan is not None
        return Table(self._session, plan)

    # -- the catalogue

    def _listed(self, statement: str) -> list[str]:
        return [str(row[0]) for row in self.execute_sql(statement).collect()]

    def list_tables(self) -> list[str]:
        """The names of all tables and views."""
        return self._session.catalog.names()

    def list_views(self) -> list[str]:
        """The names of the database's views."""
        return self._listed("SHOW VIEWS")

    def list_temporary_tables(self) -> list[str]:
        """The names of the database's tables that are no views."""
        return [name for name in self._listed("SHOW TABLES") if name not in self.list_views()]

    list_temporary_views = list_views

    def list_catalogs(self) -> list[str]:
        """The names of all catalogues."""
        return self._listed("SHOW CATALOGS")

    def list_databases(self) -> list[str]:
        """The names of the catalogue's databases."""
        return self._listed("SHOW DATABASES")

    def list_functions(self) -> list[str]:
        """The names of the functions that SQL may call."""
        return self._listed("SHOW FUNCTIONS")

    def get_current_catalog(self) -> str:
        """The catalogue in which names are looked up."""
        return self._session.catalog.current[0]

    def get_current_database(self) -> str:
        """The database in which names are looked up."""
        return self._session.catalog.current[1]

    def use_catalog(self, catalog_name: str) -> None:
        """Look up names in this catalogue. SqlError if there is none."""
        self.execute_sql(f"USE CATALOG `{catalog_name}`")

    def use_database(self, database_name: str) -> None:
        """Look up names in this database. SqlError if there is none."""
        self.execute_sql(f"USE `{database_name}`")

    def create_catalog(self, catalog_name: str, catalog_descriptor: CatalogDescriptor) -> None:
        """Create a catalogue. SqlError if there is one of the name."""
        self.execute_sql(replace(catalog_descriptor, _name=catalog_name).ddl)

    def get_catalog(self, catalog_name: str) -> Catalog:
        """A catalogue. Raises ConfigError if there is none."""
        return Catalog(self._session, catalog_name)

    def drop_temporary_table(self, table_path: str) -> bool:
        """Forget a table; returns whether there was one."""
        return self._session.catalog.drop("TABLE", self._session.catalog.path(table_path))

    def drop_temporary_view(self, view_path: str) -> bool:
        """Forget a view; returns whether there was one."""
        return self._session.catalog.drop("VIEW", self._session.catalog.path(view_path))

    def drop_table(self, table_path: str, ignore_if_not_exists: bool = True) -> bool:
        """Forget a table; returns whether there was one."""
        return self._dropped("TABLE", table_path, ignore_if_not_exists)

    def drop_view(self, view_path: str, ignore_if_not_exists: bool = True) -> bool:
        """Forget a view; returns whether there was one."""
        return self._dropped("VIEW", view_path, ignore_if_not_exists)

    def _dropped(self, kind: str, path: str, ignore: bool) -> bool:
        there = self._session.catalog.has(self._session.catalog.path(path))
        self._session.drop(Drop(kind, path, ignore, 0), Text(path))
        return there

    def get_config(self) -> TableConfig:
        """The options of the environment's jobs."""
        return TableConfig(self._session)


class StreamTableEnvironment(TableEnvironment):
    """A table environment on a StreamExecutionEnvironment: streams are tables, and tables streams."""

    @classmethod
    def create(  # type: ignore[override]  # as in PyFlink
        cls, stream_execution_environment: StreamExecutionEnvironment | None = None, environment_settings: Settings | None = None
    ) -> Self:
        """A table environment on a stream environment, by default a new one."""
        env = stream_execution_environment or cls.environment.get_execution_environment()
        return cls(_configured(env, environment_settings))

    def from_data_stream(self, data_stream: DataStream[Any], *fields_or_schema: Expression | Schema) -> Table:
        """A stream as a table of added rows, with the fields of its type as columns.

        ``fields_or_schema``: a Schema, which may also select the columns, compute more, and say which is event time; or the
        columns, by name or, with new names, by position.
        """
        return self._stream(data_stream, fields_or_schema)

    def from_changelog_stream(
        self, data_stream: DataStream[Any], schema: Schema | None = None, changelog_mode: ChangelogMode | None = None
    ) -> Table:
        """A stream of changes as a table: of the Changes that formats read, or of Rows with a kind, whose columns the schema has.

        ``changelog_mode``: by default all changes, with the rows before and after updates. With ``ChangelogMode.upsert()``, the
        schema has a primary key.
        """
        add = self._session.catalog.add_unnamed
        return self._read(add("stream", lambda name: changelog_table(name, data_stream, schema, changelog_mode)))

    def to_data_stream(self, table: Table) -> DataStream[Any]:
        """The rows of a table that only gains rows. GraphError for others: use ``to_changelog_stream``."""
        if is_updating(table._plan):
            raise GraphError("the table also changes rows, which a stream cannot tell; use to_changelog_stream()")
        return self._changes(table)

    def to_changelog_stream(
        self, table: Table, target_schema: Schema | None = None, changelog_mode: ChangelogMode | None = None
    ) -> DataStream[Any]:
        """The changes of a table as Rows with a kind: INSERT or DELETE.

        ``target_schema``: other names and types of the columns, by position. A column of metadata, the event time, is the
        elements' timestamp and no field. ``changelog_mode``: ``all()``, or ``insert_only()`` for a table that only gains rows.
        """
        all_changes = changelog_mode in (None, ChangelogMode.all())
        if not all_changes and (changelog_mode == ChangelogMode.upsert() or is_updating(table._plan)):
            raise ConfigError("to_changelog_stream(): the table's changes are added and removed rows: ChangelogMode.all()")
        table = table if target_schema is None else written_as(table, target_schema)
        changes = self._changes(table)
        return changes.map(Change(changes, table._plan.schema))

    def _changes(self, table: Table) -> DataStream[Any]:
        found = self._session.stream(table._plan, "stream")
        warn_of_endless_state("the stream of a table", found.edges, self._session.settings)
        return found


def _configured(env: StreamExecutionEnvironment, settings: Settings | None) -> StreamExecutionEnvironment:
    if settings is not None:
        env.configure(settings if isinstance(settings, Configuration) else settings.get_configuration())
    return env
