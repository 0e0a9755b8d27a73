"""The common part of table sinks' committers: commits epochs once and in order, and refuses an older copy of the state root."""

from __future__ import annotations

import random
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.ledger import refuse_put_back
from forkpoint.contract.sink import Committer, CommitterContext
from forkpoint.contract.source import JSON
from forkpoint.errors import SystemUnavailable
from forkpoint_lakehouse.columns import fit, last_of_each_key
from forkpoint_lakehouse.format import Conflict, TableFormat
from forkpoint_lakehouse.uncommitted import Uncommitted
from forkpoint_lakehouse.writers import FILE_BYTES, unpack

_TRIES = 10  # of a commit that conflicts with others' commits
_PAUSE_SECONDS = 0.3
_CONCURRENCY = 8  # requests


class TableCommitter(Committer):
    """Commits a sink's epochs to a table: one or several in a transaction, which also stores the number of the last epoch. With a
    ``key``, changes rows by key."""

    def __init__(self, context: CommitterContext, table: TableFormat, key: Sequence[str]) -> None:
        self._context = context
        self._format = table
        self._name = table.name
        self._key = list(key)
        self._uncommitted = Uncommitted(context.state_root, context.job, context.uid)
        self._table: Any = None
        self._done = 0  # the newest committed epoch when the output was prepared
        self._together: list[str] = []  # the files written from staged rows
        self._refused: list[str] = []  # the files written for a transaction that the table has refused

    def commit(self, output: EpochOutput, newest: int) -> None:
        self.commit_together([output], newest)

    def commit_together(self, outputs: Sequence[EpochOutput], newest: int) -> None:
        last = outputs[-1].epoch
        ready: EpochOutput | None = None
        for tries_left in reversed(range(_TRIES)):
            ready = self._prepare(outputs, ready, newest)
            if ready is None:
                break
            try:
                self._commit(ready)
                break
            except Conflict as conflict:
                if not tries_left:
                    self._give_up(last)
                    raise SystemUnavailable(
                        f"{self._name}: {_TRIES} commits were refused because other writers committed first: {conflict}"
                    ) from conflict
                time.sleep(random.uniform(0, _PAUSE_SECONDS))
        self._together, self._refused = [], []
        notes = {each["note"] for output in outputs for each in output.committables if "note" in each}
        self._uncommitted.settle(last, notes, self._remove)

    def _prepare(self, outputs: Sequence[EpochOutput], ready: EpochOutput | None, newest: int) -> EpochOutput | None:
        """The output that the table's newest version lacks; None if it lacks nothing. ``ready``: the output prepared before."""
        while True:
            done = self._committed()
            refuse_put_back(done, newest, f"{self._name}, for sink {self._context.uid!r},")
            left = [each for each in outputs if each.epoch > done]
            if not left:
                return None
            self._discard(self._refused)
            if ready is not None and done == self._done:
                return ready
            self._discard(self._together)
            self._done, ready = done, self._put_together(_join(left))
            if not self._together:
                return ready

    def _give_up(self, last: int) -> None:
        if self._committed() < last:
            self._discard(self._together)
            self._discard(self._refused)

    def _discard(self, files: list[str]) -> None:
        """Remove files of a refused transaction. Only if the table's newest version lacks its epoch: a duplicated request may be
        refused although its first copy was executed."""
        if files:
            self._remove(files)
            files.clear()

    def _put_together(self, output: EpochOutput) -> EpochOutput:
        """Write staged rows to data files. If this is interrupted, the table's own maintenance removes the files: a note could
        not tell whether the table names them."""
        if self._table is None:
            return output  # the commit raises the error
        files: list[JSON] = [each for each in output.committables if "appended" not in each]
        held: list[pa.Table] = []
        for rows in self._staged([each["appended"] for each in output.committables if "appended" in each]):
            held.append(rows)
            if sum(each.nbytes for each in held) >= FILE_BYTES:
                files += self._write(held, output.epoch)
                held = []
        return EpochOutput(epoch=output.epoch, committables=files + self._write(held, output.epoch))

    def _write(self, parts: Sequence[pa.Table], epoch: int) -> list[JSON]:
        if not parts:
            return []
        rows = pa.concat_tables(parts, promote_options="permissive")
        files = self._format.open(rows.schema)
        planned = files.plan(fit(rows, files.schema, self._name).combine_chunks(), f"{epoch:012d}-{uuid.uuid4()}")
        self._together += [path for path, _ in planned]
        return [files.write(path, part) for path, part in planned]

    def _staged(self, stored: Sequence[JSON]) -> Iterator[pa.Table]:
        """The rows of each staged object, in order. Keeps few in memory."""
        with ThreadPoolExecutor(_CONCURRENCY) as pool:
            for at in range(0, len(stored), _CONCURRENCY):
                yield from map(unpack, pool.map(self._context.staged, stored[at : at + _CONCURRENCY]))

    def _changes(self, output: EpochOutput) -> pa.Table:
        """The last change per key."""
        parts = list(self._staged([each["changes"] for each in output.committables]))
        return last_of_each_key(pa.concat_tables(parts, promote_options="default"), self._key)

    @abstractmethod
    def _committed(self) -> int:
        """The newest committed epoch according to the table's newest version, or 0."""

    @abstractmethod
    def _commit(self, output: EpochOutput) -> None:
        """Commit output up to an epoch to the version that ``_committed`` has read. Raises Conflict if another commit came
        first."""

    @abstractmethod
    def _remove(self, paths: Iterable[str]) -> None:
        """Remove data files, if they exist."""

    def close(self) -> None:
        self._table = None


def _join(outputs: Sequence[EpochOutput]) -> EpochOutput:
    """The output of several epochs as the last epoch's output."""
    return EpochOutput(epoch=outputs[-1].epoch, committables=[each for o in outputs for each in o.committables])
