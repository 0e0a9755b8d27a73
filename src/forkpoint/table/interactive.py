"""Statements as somebody enters them: a query has a result at once, an INSERT becomes a program of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.api.launch import Launch
from forkpoint.graph.options import RestartStrategy
from forkpoint.graph.specs import SourceSpec
from forkpoint.graph.transformations import Edge, topological_order
from forkpoint.relational.plan import Plan
from forkpoint.sql.alterations import AlterTable, AlterView
from forkpoint.sql.catalog_statements import CreateSpace, DropSpace, Use
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import Statement, parse_with_text
from forkpoint.sql.statements import CreateTable, CreateTableAs, CreateView, Drop, Insert, Query, Reset, Set
from forkpoint.table.answers import Answer, create_table
from forkpoint.table.results import TableResult, remaining
from forkpoint.table.session import Session
from forkpoint.table.statements import execute
from forkpoint.types import Row

_DEFINITIONS = (CreateTable, CreateView, AlterTable, AlterView, Drop, Set, Reset, Use, CreateSpace, DropSpace)


@dataclass(frozen=True)
class QueryResult:
    """The result of a query, which runs when it is read. ``ends``: whether its input does."""

    columns: tuple[str, ...]
    ends: bool
    _session: Session
    _plan: Plan

    def changes(self) -> Generator[Row]:
        """The changes of the result, as they come. Closing the iterator ends the query."""
        env = self._session.env
        with tempfile.TemporaryDirectory(prefix="forkpoint-query-", ignore_cleanup_errors=True) as directory:
            env.set_state_root(directory)  # not the jobs' own, where the query would be one of them
            yield from TableResult(self._plan.schema, self._session.stream(self._plan)).collect()

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows that remain once the input has ended."""
        return remaining(self.changes())


@dataclass(frozen=True)
class Program:
    """A file of SQL that runs INSERTs. ``name``: of the job, unless SET names it."""

    name: str
    text: str

    @contextmanager
    def file(self) -> Iterator[str]:
        """A file with the program, while it starts. Only this user can read it: the text may have secrets."""
        with tempfile.TemporaryDirectory(prefix="forkpoint-sql-", ignore_cleanup_errors=True) as directory:
            path = Path(directory, f"{self.name}.sql")
            path.write_text(self.text, encoding="utf-8")
            yield str(path)


Outcome = Answer | QueryResult | Program | None


@dataclass
class Interactive:
    """Executes statements one after the other. ``engine``: of queries, if nothing else is set."""

    session: Session
    engine: str = "local"
    _definitions: list[str] = field(default_factory=list)

    def define(self, source: Text) -> None:
        """Execute the statements of a file that define tables and settings, not its queries and INSERTs. Raises SqlError."""
        for statement, text in parse_with_text(source):
            if isinstance(statement, CreateTableAs):
                execute(self._throwaway(), statement, source)
                self._define_table_of(statement)
            elif isinstance(statement, _DEFINITIONS):
                self._execute(statement, text, source)

    def run(self, source: Text) -> Iterator[Outcome]:
        """Execute statements, and yield what comes of each; the INSERTs among them are one program, at the end. Raises
        SqlError."""
        inserts: list[tuple[Statement, str]] = []
        for statement, text in parse_with_text(source):
            match statement:
                case Query():
                    yield self._result(statement)
                case Insert() | CreateTableAs():
                    execute(self._throwaway(), statement, source)  # finds mistakes; the job has an environment of its own
                    inserts.append((statement, text))
                case _:
                    yield self._execute(statement, text, source)
        if inserts:
            first = inserts[0][0]
            assert isinstance(first, Insert | CreateTableAs)
            table = first.table if isinstance(first, Insert) else first.table.name
            yield Program(f"insert-into-{table}", ";\n".join([*self._definitions, *(text for _, text in inserts)]) + ";\n")
        for statement, _ in inserts:
            if isinstance(statement, CreateTableAs):
                self._define_table_of(statement)

    def _execute(self, statement: Statement, text: str, source: Text) -> Answer | None:
        answer = execute(self.session, statement, source)
        if isinstance(statement, _DEFINITIONS):
            self._definitions.append(text)
        return answer

    def _define_table_of(self, statement: CreateTableAs) -> None:
        path = self.session.catalog.path(statement.table.name)
        self._definitions.append(create_table(path, self.session.catalog.tables[path]))

    def _result(self, query: Query) -> QueryResult:
        session = self._throwaway()
        plan = session.plan(query)
        edges = session.stream(plan).edges
        return QueryResult(tuple(each.name for each in plan.schema), _ends(edges), self._throwaway(), plan)

    def _throwaway(self) -> Session:
        """A session for one job, which is neither restarted nor seen by others."""
        env = StreamExecutionEnvironment(self.session.env.options)
        if env.options.engine is None:
            env.configure({"execution.engine": self.engine})
        env.set_restart_strategy(RestartStrategy.none())
        env.launch = replace(Launch(), generated_uids=True, on_driver=lambda driver: lambda outcome: None)
        return self.session.on(env)


def _ends(edges: tuple[Edge, ...]) -> bool:
    specs = [each.spec for each in topological_order([edge.upstream for edge in edges])]
    return all(spec.source.bounded for spec in specs if isinstance(spec, SourceSpec))
