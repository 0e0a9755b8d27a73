"""The tasks that write a savepoint's files, from saved files or from runs.

If key groups stay the same, a task rewrites each file. If they change, and for external data, tasks first split rows into
runs, one per slice of key groups, and then merge the runs of a slice into a file. Runs are below ``operators/_runs`` of the
unfinished savepoint, where the next attempt removes leftovers of a killed attempt.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.states import StateInfo
from forkpoint.savepoint.edit.rows import distinct, grouped, in_order
from forkpoint.savepoint.edit.steps import Step, run_steps
from forkpoint.savepoint.format.layers import SavedFile
from forkpoint.savepoint.format.layout import Layout, layout_of
from forkpoint.savepoint.format.parquet import BLOCK_ROWS, PartWriter, WrittenPart, put_part
from forkpoint.savepoint.format.sorting import Run, read_runs, write_runs
from forkpoint.savepoint.format.tasks import FileRef, TaskOf, task
from forkpoint.storage.base import Storage, open_storage


@dataclass(frozen=True)
class Source:
    """A file of a saved state, and the pickled steps that change its rows."""

    storage_url: str
    file: SavedFile
    saved: StateInfo
    target: StateInfo
    steps: bytes


@dataclass(frozen=True)
class Rewrite:
    """A file to rewrite with the same key groups."""

    source: Source
    target_url: str
    path: str


@dataclass(frozen=True)
class RunWriter:
    """Writes rows as runs, to paths with ``prefix``; slice i begins at key group ``cuts[i]``."""

    target_url: str
    prefix: str
    cuts: tuple[int, ...]
    max_parallelism: int

    def write(self, layout: Layout, table: pa.Table) -> list[Run]:
        """Write a run for each slice that has rows; computes the key groups."""
        table, order = grouped(layout, table, self.max_parallelism)
        target = open_storage(self.target_url)
        return write_runs(target, table, order, self.cuts, lambda number: f"{self.prefix}{number}.parquet")


@dataclass(frozen=True)
class Cut:
    """A file to split into runs, because its keys get new key groups."""

    source: Source
    runs: RunWriter


@dataclass(frozen=True)
class Merge:
    """The runs of a slice to merge into a file."""

    target_url: str
    info: StateInfo
    runs: tuple[FileRef, ...]
    path: str


@task(Rewrite)
def _rewrite(plan: Rewrite) -> WrittenPart | None:
    source, target = plan.source, open_storage(plan.target_url)
    if not (source.steps or source.file.changes) and source.saved == source.target:
        data = source.file.ref.read(open_storage(source.storage_url))
        target.put(plan.path, data)
        return WrittenPart(plan.path, source.file.entries, len(data), checksum(data))
    layout, table = _stepped(source)
    return put_sorted(target, plan.path, layout, table)


@task(Cut)
def _cut(plan: Cut) -> list[Run]:
    return plan.runs.write(*_stepped(plan.source))


@task(Merge)
def _merge(plan: Merge) -> WrittenPart | None:
    target, layout = open_storage(plan.target_url), layout_of(plan.info)
    table, order = read_runs(target, plan.runs)
    return put_sorted(target, plan.path, layout, distinct(layout, _with_schema(layout, table), order))


rewrite = TaskOf[Rewrite, WrittenPart | None](_rewrite, WrittenPart | None)  # type: ignore[arg-type]
cut = TaskOf[Cut, list[Run]](_cut, list[Run])
merge = TaskOf[Merge, WrittenPart | None](_merge, WrittenPart | None)  # type: ignore[arg-type]


def _stepped(source: Source) -> tuple[Layout, pa.Table]:
    """A file's rows after all steps, with the new state's schema."""
    saved, target = layout_of(source.saved), layout_of(source.target)
    found = list(source.file.tables(open_storage(source.storage_url), saved))
    table = pa.concat_tables(found) if found else saved.schema.empty_table()
    if source.file.changes:
        table = in_order(saved, table)
    steps: Sequence[Step] = pickle.loads(source.steps) if source.steps else ()
    return target, _with_schema(target, run_steps(steps, saved, table))


def _with_schema(layout: Layout, table: pa.Table) -> pa.Table:
    return pa.Table.from_arrays(table.columns, schema=layout.schema)


def put_sorted(target: Storage, path: str, layout: Layout, table: pa.Table) -> WrittenPart | None:
    """Write sorted rows; writes no file without rows."""
    if not table.num_rows:
        return None
    part = PartWriter(layout)
    for start in range(0, table.num_rows, BLOCK_ROWS):
        part.write(table.slice(start, BLOCK_ROWS))
    return put_part(target, path, part)
