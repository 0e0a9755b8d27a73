"""Statements as somebody enters them: a query has a result at once, an INSERT becomes a program of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from forkpoint.sql.alterations import AlterTable, AlterView
from forkpoint.sql.catalog_statements import CreateSpace, DropSpace, Use
from forkpoint.sql.errors import Text
from forkpoint.sql.function_statements import CreateFunction, DropFunction
from forkpoint.sql.parser import Statement, parse_with_text
from forkpoint.sql.statements import CreateTable, CreateTableAs, CreateView, Drop, Insert, Query, Reset, Set
from forkpoint.table.answers import Answer, create_table, insert_into
from forkpoint.table.api.query_results import QueryResult, throwaway
from forkpoint.table.session import Session
from forkpoint.table.statements import execute
from forkpoint.table.stored_definitions import is_stored, refresh

_FUNCTIONS = (CreateFunction, DropFunction)
_DEFINITIONS = (CreateTable, CreateView, AlterTable, AlterView, Drop, Set, Reset, Use, CreateSpace, DropSpace, *_FUNCTIONS)


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
        refresh(self.session)  # others may have changed catalogues
        for statement, text in parse_with_text(source):
            match statement:
                case Query():
                    yield self._result(statement)
                case Insert() | CreateTableAs():
                    execute(self._throwaway(), statement, source)  # finds mistakes; the job has an environment of its own
                    inserts.append((statement, self._for_job(statement, text)))
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
        if isinstance(statement, _DEFINITIONS) and not is_stored(self.session.catalog, statement):
            self._definitions.append(text)
        return answer

    def _for_job(self, statement: Insert | CreateTableAs, text: str) -> str:
        """A statement as the job executes it: a table of a stored catalogue is there already."""
        if isinstance(statement, Insert) or not is_stored(self.session.catalog, statement.table):
            return text
        return insert_into(self.session.catalog.path(statement.table.name), statement.query)

    def _define_table_of(self, statement: CreateTableAs) -> None:
        path = self.session.catalog.path(statement.table.name)
        if is_stored(self.session.catalog, statement.table):
            return
        self._definitions.append(create_table(path, self.session.catalog.tables[path]))

    def _result(self, query: Query) -> QueryResult:
        session = self._throwaway()
        return QueryResult.of(session, session.plan(query), self.engine)

    def _throwaway(self) -> Session:
        return throwaway(self.session, self.engine)
