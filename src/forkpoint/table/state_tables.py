"""The catalogue `state`: a database for each job, with a table for each of its states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forkpoint.checkpoint.paths import JOBS, job_of
from forkpoint.errors import JobNotFound
from forkpoint.savepoint.catalog.listing import jobs_with_savepoints
from forkpoint.savepoint.format.layout import UniqueNames
from forkpoint.savepoint.inspect.state_rows import StateRows
from forkpoint.sql.errors import Text, did_you_mean
from forkpoint.sql.statements import CreateTable
from forkpoint.storage.base import open_storage
from forkpoint.table.connectors.state import columns_of, saved_state, table_name

STATE = "state"
"""The catalogue's name."""


class StateTables:
    """The tables of the jobs below a state root. ``place``: gives the root, which options of the job may change."""

    def __init__(self, place: Callable[[], str] | None = None) -> None:
        self.place = place

    @property
    def root(self) -> str:
        assert self.place is not None
        return self.place()

    def databases(self) -> list[str]:
        """The jobs that have committed an epoch, or have savepoints."""
        storage = open_storage(self.root)
        committed = {job_of(path) for path in storage.list(JOBS) if "/checkpoints/" in path}
        return sorted({*(job for job in committed if job is not None), *jobs_with_savepoints(storage)})

    def tables(self, job: str) -> dict[str, StateRows]:
        """The states of a job, and the timers of its operators, by their names in SQL. Raises JobNotFound."""
        names, saved = UniqueNames(), saved_state(self.root, job)
        return {names.first_free(table_name(state)): state for state in saved.states}

    def table(self, path: str) -> CreateTable | None:
        """The definition of a table; None if the path is of another catalogue, or there is none."""
        catalog, _, rest = path.partition(".")
        job, _, name = rest.rpartition(".")
        if catalog != STATE or not job:
            return None
        try:
            state = self.tables(job).get(name)
        except JobNotFound:
            return None
        return None if state is None else self._definition(path, job, state)

    def _definition(self, path: str, job: str, state: StateRows) -> CreateTable:
        options = {"connector": STATE, "job": job, "operator": state.uid, "state": state.name, "state-root": self.root}
        return CreateTable(path, tuple(columns_of(state)), (), options, False, Text(path, STATE), {"": 0})

    def missing(self, path: str) -> str | None:
        """What is wrong with a path of the catalogue for which there is no table; None for other paths."""
        catalog, _, rest = path.partition(".")
        job, _, name = rest.rpartition(".")
        if catalog != STATE or not job:
            return None
        try:
            known: Any = self.tables(job)
        except JobNotFound:
            return f"there is no job {job!r} with state below {self.root}; {did_you_mean(job, self.databases())}"
        return f"job {job!r} has no state {name!r}; {did_you_mean(name, known)}"
