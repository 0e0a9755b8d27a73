"""Results of queries that somebody looks at: they run as jobs of their own, which leave nothing behind."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.api.launch import Launch
from forkpoint.graph.options import RestartStrategy
from forkpoint.relational.plan import Plan
from forkpoint.table.api.ordering import Ordering, ordering_of
from forkpoint.table.api.results import TableResult, check_ends, is_bounded, remaining
from forkpoint.table.session import Session
from forkpoint.types import Row


@dataclass(frozen=True)
class QueryResult:
    """The result of a query, which runs when it is read. ``ends``: whether its input does."""

    columns: tuple[str, ...]
    ends: bool
    _session: Session
    _plan: Plan
    _ordering: Ordering | None

    @staticmethod
    def of(session: Session, plan: Plan, engine: str = "local") -> QueryResult:
        """The result of a plan. ``engine``: of its job, if nothing else is set."""
        ordering = ordering_of(plan, limited=True)
        rows = plan if ordering is None else ordering.plan
        ends = is_bounded(throwaway(session, engine).stream(rows))
        if not ends and ordering is not None and ordering_of(plan, limited=False) is None:  # its changes are those of any query
            ordering, rows = None, plan
        return QueryResult(tuple(each.name for each in plan.schema), ends, throwaway(session, engine), rows, ordering)

    def changes(self) -> Generator[Row]:
        """The changes of the result, as they come. Closing the iterator ends the query."""
        check_ends(self._ordering, self.ends)
        env = self._session.env
        with tempfile.TemporaryDirectory(prefix="forkpoint-query-", ignore_cleanup_errors=True) as directory:
            env.set_state_root(directory)  # not the jobs' own, where the query would be one of them
            yield from TableResult(self._plan.schema, self._session.stream(self._plan)).collect()

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows that remain once the input has ended."""
        rows = remaining(self.changes())
        return rows if self._ordering is None else self._ordering.sorted(rows)


def throwaway(session: Session, engine: str) -> Session:
    """A session with the same tables for one job, which is neither restarted nor seen by others."""
    env = StreamExecutionEnvironment(session.env.options)
    if env.options.engine is None:
        env.configure({"execution.engine": engine})
    env.set_restart_strategy(RestartStrategy.none())
    env.launch = replace(Launch(), generated_uids=True, on_driver=lambda driver: lambda outcome: None)
    return session.on(env)
