"""Writing a draft of a savepoint: the files of its states, task by task, into a new savepoint."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.checkpoint.manifest import Parent, SourcePosition
from forkpoint.checkpoint.savepoint_manifest import Savepoint, SavepointFile
from forkpoint.errors import ForkpointError
from forkpoint.savepoint.directory import remove_partial
from forkpoint.savepoint.layout import Layout, layout_of
from forkpoint.savepoint.naming import new_savepoint_id
from forkpoint.savepoint.reading import OpenedSavepoint
from forkpoint.savepoint.runs import Run
from forkpoint.savepoint.slices import ENTRIES_PER_SLICE, MAX_SLICES, cut_groups
from forkpoint.savepoint.tasks import Progress, RunTasks
from forkpoint.savepoint.writing import NewSavepoint, OperatorStates, written_by
from forkpoint.state_processor.data import Fitter, is_spark, tables_of
from forkpoint.state_processor.plan import Given, PlannedState, Saved
from forkpoint.state_processor.tasks import Cut, Merge, Rewrite, Source, cut, cut_rows, merge, put_rows, rewrite
from forkpoint.storage.base import Storage
from forkpoint.types import dumps

_RUNS = "operators/_runs"  # no operator can have this name, as escaped names have no leading underscore
_PARTITION_ROWS = 1 << 40  # lists whose elements come from several partitions keep these apart


@dataclass(frozen=True)
class DraftOperator:
    """An operator of a draft, with its states by name."""

    uid: str
    name: str
    kind: str
    states: Sequence[PlannedState]


@dataclass(frozen=True)
class Draft:
    """All that a new savepoint is to be. ``base``: what it is made from."""

    job: str
    run: str
    base: Savepoint | None
    parent: Parent
    max_parallelism: int
    parallelism: int
    sources: Mapping[str, SourcePosition]
    watermarks: Mapping[str, int]
    input_watermarks: Mapping[str, list[int]]
    operators: Sequence[DraftOperator]
    label: str | None = None
    note: str | None = None
    savepoint_id: str | None = None

    def states(self) -> list[PlannedState]:
        """The states of all operators."""
        return [state for operator in self.operators for state in operator.states]


def write_draft(draft: Draft, target: Storage, run_tasks: RunTasks, progress: Progress) -> OpenedSavepoint:
    """See ``SavepointWriter.write``."""
    new = NewSavepoint(target)
    try:
        _Writing(draft, new, run_tasks, progress).run()
        savepoint = _savepoint(draft, new)
        new.complete(savepoint)
    except BaseException:
        with suppress(ForkpointError):
            remove_partial(target)
        raise
    return OpenedSavepoint(savepoint, target)


def _savepoint(draft: Draft, new: NewSavepoint) -> Savepoint:
    base = draft.base
    operators = [OperatorStates(o.uid, o.name, o.kind, [state.info for state in o.states]) for o in draft.operators]
    return Savepoint(
        id=draft.savepoint_id or new_savepoint_id(), job=draft.job, run=draft.run, epoch=0 if base is None else base.epoch,
        created_ms=time.time_ns() // 1_000_000, parent=draft.parent, label=draft.label, note=draft.note,
        drained=base is not None and base.drained, edited=True,
        versions=written_by(None if base is None else base.versions.spark),
        code_version=None if base is None else base.code_version, max_parallelism=draft.max_parallelism,
        parallelism=draft.parallelism, sources=dict(draft.sources), watermarks=dict(draft.watermarks),
        input_watermarks=dict(draft.input_watermarks), operators=new.operators(operators),
    )  # fmt: skip


@dataclass
class _Writing:
    """Does the work. ``runs``: of each state by its place in ``draft.states()``."""

    draft: Draft
    new: NewSavepoint
    run_tasks: RunTasks
    progress: Progress
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    done: int = 0
    total: int = 0
    runs: defaultdict[int, list[Run]] = field(default_factory=lambda: defaultdict(list))

    @property
    def target(self) -> Storage:
        return self.new.target

    def run(self) -> None:
        """Write all files."""
        states = self.draft.states()
        kept = [n for n, state in enumerate(states) if self._keeps_groups(state)]
        moved = [n for n, state in enumerate(states) if isinstance(state.origin, Saved) and n not in kept]
        given = [n for n, state in enumerate(states) if isinstance(state.origin, Given)]
        slices = sum(len(self._ranges(states[n])) for n in (*moved, *given) if not states[n].info.is_operator_state)
        self.total = sum(len(list(_sources(states[n]))) for n in (*kept, *moved)) + len(given) + slices
        self._rewrite(states, kept)
        self._cut(states, moved)
        for number in given:
            self._take(number, states[number])
        self._merge(states)
        for run in self.target.list(_RUNS):
            self.target.delete(run)

    def _keeps_groups(self, state: PlannedState) -> bool:
        if not isinstance(state.origin, Saved):
            return False
        same = state.origin.opened.savepoint.max_parallelism == self.draft.max_parallelism
        return state.info.is_operator_state or (same and not state.rekeyed)

    # -- saved states

    def _rewrite(self, states: list[PlannedState], chosen: list[int]) -> None:
        planned = [(n, file, source) for n in chosen for file, source in _sources(states[n])]
        tasks = [Rewrite(source, self.target.url, self.new.path(states[n].info)) for n, _, source in planned]
        written = rewrite(self.run_tasks, tasks, self.progress, done=self.done, total=self.total)
        self.done += len(tasks)
        for (n, file, _), part in zip(planned, written, strict=True):
            self.new.add(states[n].info, part, file.kg_start, file.kg_stop)

    def _cut(self, states: list[PlannedState], chosen: list[int]) -> None:
        planned = [(n, source) for n in chosen for _, source in _sources(states[n])]
        tasks = [
            Cut(source, self.target.url, self._prefix(n, number), self._cuts(states[n]), self.draft.max_parallelism)
            for number, (n, source) in enumerate(planned)
        ]
        found = cut(self.run_tasks, tasks, self.progress, done=self.done, total=self.total)
        self.done += len(tasks)
        for (n, _), runs in zip(planned, found, strict=True):
            self.runs[n] += runs

    def _merge(self, states: list[PlannedState]) -> None:
        planned: list[tuple[int, int, Merge]] = []
        for n, runs in self.runs.items():
            slices: defaultdict[int, list[Run]] = defaultdict(list)
            for run in runs:
                slices[run.slice].append(run)
            for number, pieces in sorted(slices.items()):
                files = tuple(run.file for run in pieces)
                planned.append(
                    (n, number, Merge(self.target.url, states[n].info, files, self.new.path(states[n].info)))
                )
        tasks = [task for _, _, task in planned]
        written = merge(self.run_tasks, tasks, self.progress, done=self.done, total=self.total)
        for (n, number, _), part in zip(planned, written, strict=True):
            self.new.add(states[n].info, part, *self._ranges(states[n])[number])
        self.progress(self.total, self.total)

    def _ranges(self, state: PlannedState) -> list[tuple[int, int]]:
        """The slices of key groups that a state's files will have."""
        return cut_groups(self.draft.max_parallelism, self.draft.parallelism, _entries(state))

    def _cuts(self, state: PlannedState) -> tuple[int, ...]:
        return tuple(start for start, _ in self._ranges(state))

    # -- data from elsewhere

    def _take(self, number: int, state: PlannedState) -> None:
        assert isinstance(state.origin, Given)
        layout, data = layout_of(state.info), state.origin.take(state.info.where)
        fitter = Fitter(layout, state.origin.columns, time.time_ns() // 1_000_000)
        if state.info.is_operator_state:
            self._take_list(state, fitter, data)
        elif is_spark(data):
            from forkpoint.state_processor.frames import runs_of

            plan = self.target.url, self._prefix(number, 0), self._cuts(state), self.draft.max_parallelism
            self.runs[number] += runs_of(data, fitter, *plan, _PARTITION_ROWS)
        else:
            for piece, table in enumerate(tables_of(data)):
                self.runs[number] += cut_rows(
                    self.target, layout, fitter(table), self._prefix(number, piece), self._cuts(state),
                    self.draft.max_parallelism,
                )  # fmt: skip
        self.done += 1
        self.progress(self.done, self.total)

    def _take_list(self, state: PlannedState, fitter: Fitter, data: Any) -> None:
        """Operator state is small: all at once."""
        found = list(tables_of(data.toArrow() if is_spark(data) else data))
        layout = fitter.layout
        table = pa.concat_tables([layout.schema.empty_table(), *map(fitter, found)])
        told = any("subtask" in each.column_names or "subtask" in fitter.columns for each in found)
        if not told and state.info.kind == "operator-list" and table.num_rows:
            table = _dealt_out(layout, table, self.draft.parallelism)
        self.new.add(state.info, put_rows(self.target, self.new.path(state.info), layout, table), 0, 0)

    # -- small things

    def _prefix(self, state: int, piece: int) -> str:
        return f"{_RUNS}/{self.attempt}-{state}-{piece}/part-"


def _sources(state: PlannedState) -> Iterator[tuple[SavepointFile, Source]]:
    """The files of a saved state that have rows, with what becomes of them."""
    saved = state.origin
    assert isinstance(saved, Saved)
    steps = dumps(state.steps) if state.steps else b""
    for file in saved.state.files:
        if file.entries:
            ref = saved.opened.file(file)
            yield file, Source(saved.opened.storage.url, ref, file.entries, saved.state.info, state.info, steps)


def _entries(state: PlannedState) -> int:
    if isinstance(state.origin, Saved):
        return state.origin.state.entries
    data = state.origin.data
    rows = getattr(data, "num_rows", None)
    if isinstance(data, Sequence) and data and hasattr(data[0], "num_rows"):  # tables, not rows
        rows = sum(getattr(each, "num_rows", 1) for each in data)
    elif rows is None and hasattr(data, "__len__") and not isinstance(data, Mapping):
        rows = len(data)
    return ENTRIES_PER_SLICE * MAX_SLICES if rows is None else int(rows)


def _dealt_out(layout: Layout, table: pa.Table, parallelism: int) -> pa.Table:
    """A list's elements on all subtasks, in order and evenly."""
    count = table.num_rows
    shares = (np.arange(count, dtype=np.int64) * parallelism // count).astype(np.int32)
    return table.set_column(0, layout.schema.field(0), pa.array(shares))
