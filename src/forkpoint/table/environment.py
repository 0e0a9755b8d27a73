"""StreamTableEnvironment: SQL in a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.api.streams.streams import DataStream
from forkpoint.errors import GraphError
from forkpoint.functions.sql import ScalarFunction
from forkpoint.relational.plan import Plan
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import CreateTableAs, Insert, Query
from forkpoint.table.explanation import explained
from forkpoint.table.functions import PythonFunction
from forkpoint.table.results import TableResult
from forkpoint.table.schema import Schema
from forkpoint.table.session import Session
from forkpoint.table.statements import execute


class StreamTableEnvironment:
    """Runs SQL statements on a StreamExecutionEnvironment. Created with ``create``."""

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self._session = Session(env)

    @staticmethod
    def create(stream_execution_environment: StreamExecutionEnvironment | None = None) -> StreamTableEnvironment:
        """A table environment on a stream environment, by default a new one."""
        env = stream_execution_environment or StreamExecutionEnvironment.get_execution_environment()
        return StreamTableEnvironment(env)

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
            return self._started()
        return TableResult(answer=answers[0])

    def create_temporary_view(self, view_path: str, data_stream: DataStream[Any], schema: Schema | None = None) -> None:
        """Give a stream a name in SQL: a table of added rows, with the fields of the stream's type as columns.

        ``schema``: more columns, and which is event time.
        """
        self._session.add_stream(view_path, data_stream, schema)

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

    def create_statement_set(self) -> StatementSet:
        """Several INSERTs that run as one job."""
        return StatementSet(self)

    def list_tables(self) -> list[str]:
        """The names of all tables and views."""
        return self._session.catalog.names()

    def _started(self) -> TableResult:
        client = self._session.env.execute_async(self._session.name)
        self._session.forget_job()
        return TableResult(client=client)


class Table:
    """The result of a query, which nothing has computed yet."""

    def __init__(self, session: Session, plan: Plan) -> None:
        self._session, self._plan = session, plan

    def execute(self) -> TableResult:
        """The changes of the result, which run when they are collected or printed."""
        return TableResult(self._plan.schema, self._session.stream(self._plan))

    def explain(self) -> str:
        """The plan as text."""
        return explained(self._plan)


class StatementSet:
    """INSERTs that run as one job."""

    def __init__(self, t_env: StreamTableEnvironment) -> None:
        self._t_env = t_env

    def add_insert_sql(self, stmt: str) -> StatementSet:
        """Add an INSERT statement. SqlError if it is not valid."""
        for statement in parse(Text(stmt)):
            if not isinstance(statement, Insert):
                raise GraphError("add_insert_sql() takes INSERT INTO; use execute_sql() for other statements")
            self._t_env._session.insert(statement)
        return self

    def execute(self) -> TableResult:
        """Start the job."""
        return self._t_env._started()
