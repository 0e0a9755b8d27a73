"""What the committers of table sinks have in common: once, after what precedes it, and never what an older copy knows."""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Iterable

import pyarrow as pa

from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.committing import Committer, CommitterContext
from forkpoint.connectors.ledger import refuse_put_back
from forkpoint.connectors.tables.columns import last_of_each_key
from forkpoint.connectors.tables.uncommitted import Uncommitted
from forkpoint.connectors.tables.writing import unpack_changes
from forkpoint.errors import SystemUnavailable

_TRIES = 10  # of a commit that others' commits get ahead of
_PAUSE_SECONDS = 0.3


class Conflict(Exception):
    """Another commit to the table got ahead."""


class TableCommitter(Committer):
    """Commits a sink's epochs to one table, each in one transaction that also says which epoch it is."""

    def __init__(self, context: CommitterContext, table: str) -> None:
        self._context = context
        self._name = table
        self._uncommitted = Uncommitted(context.state_root, context.job, context.uid)

    def commit(self, output: EpochOutput, newest: int) -> None:
        for tries_left in reversed(range(_TRIES)):
            done = self._committed()
            refuse_put_back(done, newest, f"{self._name}, for sink {self._context.uid!r},")
            if output.epoch <= done:
                break
            try:
                self._commit(output)
                break
            except Conflict as conflict:
                if not tries_left:
                    raise SystemUnavailable(
                        f"{self._name}: {_TRIES} commits were refused as other writers' got ahead: {conflict}"
                    ) from conflict
                time.sleep(random.uniform(0, _PAUSE_SECONDS))
        notes = {each["note"] for each in output.committables if "note" in each}
        self._uncommitted.settle(output.epoch, notes, self._remove)

    @abstractmethod
    def _committed(self) -> int:
        """The newest epoch that the table's newest version says was committed, or 0."""

    @abstractmethod
    def _commit(self, output: EpochOutput) -> None:
        """Commit an epoch to the version that ``_committed`` has read. Raises Conflict if another commit got ahead."""

    @abstractmethod
    def _remove(self, paths: Iterable[str]) -> None:
        """Remove data files, if they exist."""

    def _changes(self, output: EpochOutput, key: list[str]) -> pa.Table:
        """The last change of each key."""
        parts = [unpack_changes(self._context.staged(each["changes"])) for each in output.committables]
        return last_of_each_key(pa.concat_tables(parts, promote_options="default"), key)
