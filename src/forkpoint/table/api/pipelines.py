"""INSERTs of a program: single ones, and sets that run as one job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forkpoint.errors import GraphError
from forkpoint.relational.plan import Plan
from forkpoint.relational.types import BIGINT, Field
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import Insert
from forkpoint.table.api.catalogs import ObjectIdentifier
from forkpoint.table.api.results import TableResult
from forkpoint.table.api.table_descriptor import TableDescriptor
from forkpoint.table.explanation import insertion
from forkpoint.table.session import Session

if TYPE_CHECKING:
    from forkpoint.table.api.table import Table


class TablePipeline:
    """A table that is written into another one."""

    def __init__(self, session: Session, plan: Plan, target: str | TableDescriptor, overwrite: bool) -> None:
        if isinstance(target, TableDescriptor):
            descriptor = target.with_columns(plan.schema)
            table_path = session.catalog.add_unnamed("table", lambda name: session.defined(descriptor.ddl(f"TABLE {name}")))
        else:
            table_path = target
        self._session, self._given = session, {"table": plan}
        (statement,) = parse(
            Text(f"INSERT {'OVERWRITE' if overwrite else 'INTO'} {table_path} SELECT * FROM `table`", "Table API")
        )
        assert isinstance(statement, Insert)
        self._statement = statement
        self._is_named = isinstance(target, str)

    def get_sink_identifier(self) -> ObjectIdentifier | None:
        """The table that is written; None if it has no name."""
        return ObjectIdentifier.of_path(self._session.catalog.path(self._statement.table)) if self._is_named else None

    def execute(self) -> TableResult:
        """Start a job that writes the rows."""
        self.add()
        return started(self._session)

    def add(self) -> None:
        """Add the operators that write the rows to the next job."""
        self._session.insert(self._statement, self._given)

    def explain(self, *extra_details: Any) -> str:
        """The plan as text."""
        return insertion(*self._session.plan_of_insert(self._statement, self._given), self._session.ttl_ms)


class StatementSet:
    """INSERTs that run as one job."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._plans: list[str] = []

    def add(self, table_pipeline: TablePipeline) -> StatementSet:
        """Add what ``Table.insert_into`` has made."""
        self._plans.append(table_pipeline.explain())
        table_pipeline.add()
        return self

    def add_insert(self, target_path_or_descriptor: str | TableDescriptor, table: Table, overwrite: bool = False) -> StatementSet:
        """Add a table that is written into another one."""
        return self.add(table.insert_into(target_path_or_descriptor, overwrite))

    def add_insert_sql(self, stmt: str) -> StatementSet:
        """Add an INSERT statement. SqlError if it is not valid."""
        for statement in parse(Text(stmt)):
            if not isinstance(statement, Insert):
                raise GraphError("add_insert_sql() takes INSERT INTO; use execute_sql() for other statements")
            self._plans.append(insertion(*self._session.plan_of_insert(statement)))
            self._session.insert(statement)
        return self

    def explain(self, *extra_details: Any) -> str:
        """The plans as text."""
        return "\n\n".join(self._plans)

    def execute(self) -> TableResult:
        """Start the job."""
        return started(self._session)


def started(session: Session) -> TableResult:
    """Start the job of the session's INSERTs, which has their first table's name unless the program names it."""
    targets = tuple(Field(ObjectIdentifier.of_path(path).as_summary_string(), BIGINT) for path in session.inserted)
    name = (
        session.name
        or session.env.options.accepted.get("pipeline.name")
        or f"insert-into-{session.inserted[0].rpartition('.')[2]}"
    )
    client = session.env.execute_async(str(name))
    session.forget_job()
    return TableResult(targets, client=client)
