"""Drafts of new savepoints: the origin of each state's rows, the steps that change them, and the tasks that write them."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.checkpoint.manifest import Parent, SourcePosition
from forkpoint.checkpoint.savepoint_manifest import Savepoint, SavepointState
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import EditRefused, ForkpointError
from forkpoint.functions import MapStateDescriptor, StateDescriptor
from forkpoint.savepoint.catalog.names import new_savepoint_id
from forkpoint.savepoint.edit.data import Fitter, is_spark, tables_of
from forkpoint.savepoint.edit.rows import in_order
from forkpoint.savepoint.edit.steps import Step
from forkpoint.savepoint.edit.tasks import Cut, Merge, Rewrite, RunWriter, Source, cut, merge, put_sorted, rewrite
from forkpoint.savepoint.format.directory import NewSavepoint, remove_partial, written_by
from forkpoint.savepoint.format.layout import layout_of
from forkpoint.savepoint.format.opened_savepoint import OpenedSavepoint
from forkpoint.savepoint.format.sorting import ENTRIES_PER_SLICE, MAX_SLICES, Run, cut_groups
from forkpoint.savepoint.format.tasks import Progress, RunTasks, TaskRunner
from forkpoint.storage.base import Storage
from forkpoint.types import TypeInformation, dumps

_RUNS = "operators/_runs"  # not an operator's directory: escaped names have no leading underscore
_PARTITION_ROWS = 1 << 40  # so that partitions do not share list indexes


@dataclass
class DraftOperator:
    """An operator of a draft, and its states by name."""

    name: str
    kind: str = ""
    states: dict[str, PlannedState] = field(default_factory=dict)


@dataclass
class Draft:
    """A savepoint to be written. ``base``: the savepoint that it is made from."""

    job: str
    max_parallelism: int
    parallelism: int
    run: str = "bootstrap"
    base: Savepoint | None = None
    parent: Parent = field(default_factory=Parent)
    operators: dict[str, DraftOperator] = field(default_factory=dict)
    sources: dict[str, SourcePosition] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    input_watermarks: dict[str, list[int]] = field(default_factory=dict)
    label: str | None = None
    note: str | None = None
    savepoint_id: str | None = None


def write_draft(draft: Draft, target: Storage, run_tasks: RunTasks, progress: Progress) -> OpenedSavepoint:
    """See ``SavepointWriter.write``."""
    new = NewSavepoint(target)
    try:
        _DraftWriter(draft, new).run(run_tasks, progress)
        savepoint = _savepoint(draft, new)
        new.complete(savepoint)
    except BaseException:
        with suppress(ForkpointError):
            remove_partial(target)
        raise
    return OpenedSavepoint(savepoint, target)


def _savepoint(draft: Draft, new: NewSavepoint) -> Savepoint:
    base = draft.base
    operators = [
        new.operator(uid, operator.name, operator.kind, [state.info for state in operator.states.values()])
        for uid, operator in draft.operators.items()
    ]
    return Savepoint(
        id=draft.savepoint_id or new_savepoint_id(),
        job=draft.job,
        run=draft.run,
        epoch=0 if base is None else base.epoch,
        created_ms=time.time_ns() // 1_000_000,
        parent=draft.parent,
        label=draft.label,
        note=draft.note,
        drained=base is not None and base.drained,
        edited=True,
        versions=written_by(None if base is None else base.versions.spark),
        code_version=None if base is None else base.code_version,
        max_parallelism=draft.max_parallelism,
        parallelism=draft.parallelism,
        sources=draft.sources,
        watermarks=draft.watermarks,
        input_watermarks=draft.input_watermarks,
        operators=operators,
    )


@dataclass
class _DraftWriter:
    """Writes the files of a draft's states. ``runs``: by index in ``states``."""

    draft: Draft
    new: NewSavepoint
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    runs: defaultdict[int, list[Run]] = field(default_factory=lambda: defaultdict(list))

    @cached_property
    def states(self) -> list[PlannedState]:
        return [state for operator in self.draft.operators.values() for state in operator.states.values()]

    def run(self, run_tasks: RunTasks, progress: Progress) -> None:
        states = self.states
        kept = [n for n, state in enumerate(states) if self._keeps_groups(state)]
        moved = [n for n, state in enumerate(states) if isinstance(state.origin, SavedRows) and n not in kept]
        external = [n for n, state in enumerate(states) if isinstance(state.origin, ExternalData)]
        slices = sum(len(self._ranges(states[n])) for n in (*moved, *external) if not states[n].info.is_operator_state)
        files = sum(len(list(_sources(states[n]))) for n in (*kept, *moved))
        tasks = TaskRunner(run_tasks, progress, files + len(external) + slices)
        sources = [source for n in kept for source in _sources(states[n])]
        rewrites = [Rewrite(source, self.new.target.url, self.new.path(source.target)) for source in sources]
        for source, part in zip(sources, tasks(rewrite, rewrites), strict=True):
            self.new.add(source.target, part, source.file.kg_start, source.file.kg_stop)
        planned = [(n, source) for n in moved for source in _sources(states[n])]
        cuts = [Cut(source, self._run_writer(n, number)) for number, (n, source) in enumerate(planned)]
        for (n, _), runs in zip(planned, tasks(cut, cuts), strict=True):
            self.runs[n] += runs
        for n in external:
            self._write_external(n)
            tasks.advance(1)
        self._merge(tasks)
        tasks.advance(tasks.total - tasks.done)  # slices without rows have no task
        for run in self.new.target.list(_RUNS):
            self.new.target.delete(run)

    def _keeps_groups(self, state: PlannedState) -> bool:
        if not isinstance(state.origin, SavedRows):
            return False
        same = state.origin.opened.savepoint.max_parallelism == self.draft.max_parallelism
        return state.info.is_operator_state or (same and not state.rekeyed)

    def _merge(self, tasks: TaskRunner) -> None:
        planned: list[tuple[int, int, Merge]] = []
        for n, runs in self.runs.items():
            info = self.states[n].info
            slices: defaultdict[int, list[Run]] = defaultdict(list)
            for run in runs:
                slices[run.slice].append(run)
            for number, pieces in sorted(slices.items()):
                files = tuple(run.file for run in pieces)
                planned.append((n, number, Merge(self.new.target.url, info, files, self.new.path(info))))
        written = tasks(merge, [argument for _, _, argument in planned])
        for (n, number, _), part in zip(planned, written, strict=True):
            self.new.add(self.states[n].info, part, *self._ranges(self.states[n])[number])

    def _ranges(self, state: PlannedState) -> list[tuple[int, int]]:
        """The ranges of key groups of a state's new files."""
        return cut_groups(self.draft.max_parallelism, self.draft.parallelism, _entries(state))

    def _run_writer(self, number: int, piece: int) -> RunWriter:
        prefix = f"{_RUNS}/{self.attempt}-{number}-{piece}/part-"
        cuts = tuple(start for start, _ in self._ranges(self.states[number]))
        return RunWriter(self.new.target.url, prefix, cuts, self.draft.max_parallelism)

    def _write_external(self, number: int) -> None:
        state = self.states[number]
        assert isinstance(state.origin, ExternalData)
        layout, data = layout_of(state.info), state.origin.take(state.info.where)
        fitter = Fitter(layout, state.origin.columns, time.time_ns() // 1_000_000)
        if state.info.is_operator_state:
            self._write_operator_state(state, fitter, data)
        elif is_spark(data):
            from forkpoint.savepoint.inspect.frames import runs_of

            self.runs[number] += runs_of(data, fitter, self._run_writer(number, 0), _PARTITION_ROWS)
        else:
            for piece, table in enumerate(tables_of(data)):
                self.runs[number] += self._run_writer(number, piece).write(layout, fitter(table))

    def _write_operator_state(self, state: PlannedState, fitter: Fitter, data: Any) -> None:
        """Writes operator state, which fits into memory; distributes a list evenly unless the data assigns subtasks."""
        found = list(tables_of(data.toArrow() if is_spark(data) else data))
        layout = fitter.layout
        table = pa.concat_tables([layout.schema.empty_table(), *map(fitter, found)])
        assigned = any("subtask" in each.column_names or "subtask" in fitter.columns for each in found)
        if not assigned and state.info.kind == "operator-list" and (count := table.num_rows):
            subtasks = (np.arange(count, dtype=np.int64) * self.draft.parallelism // count).astype(np.int32)
            table = table.set_column(0, layout.schema.field(0), pa.array(subtasks))
        part = put_sorted(self.new.target, self.new.path(state.info), layout, in_order(layout, table))
        self.new.add(state.info, part, 0, 0)


def _sources(state: PlannedState) -> Iterator[Source]:
    """The files of a saved state that have rows, with the state's steps."""
    saved = state.origin
    assert isinstance(saved, SavedRows)
    steps = dumps(state.steps) if state.steps else b""
    for file in saved.state.files:
        if file.entries:
            yield Source(saved.opened.storage.url, saved.opened.file(file), saved.state.info, state.info, steps)


def _entries(state: PlannedState) -> int:
    if isinstance(state.origin, SavedRows):
        return state.origin.state.entries
    data = state.origin.data
    rows = getattr(data, "num_rows", None)
    if isinstance(data, Sequence) and data and hasattr(data[0], "num_rows"):  # tables, not rows
        rows = sum(getattr(each, "num_rows", 1) for each in data)
    elif rows is None and hasattr(data, "__len__") and not isinstance(data, Mapping):
        rows = len(data)
    return ENTRIES_PER_SLICE * MAX_SLICES if rows is None else int(rows)


@dataclass(frozen=True)
class SavedRows:
    """The rows of another savepoint's state."""

    opened: OpenedSavepoint
    state: SavepointState


@dataclass(frozen=True)
class ExternalData:
    """External data. ``columns``: see ``Fitter``. ``taken``: not empty once the data was read."""

    data: Any
    columns: Mapping[str, str]
    taken: list[bool] = field(default_factory=list, compare=False)

    def take(self, where: str) -> Any:
        """The data. Raises EditRefused for a stream that was already read."""
        if self.taken and isinstance(self.data, Iterator | pa.RecordBatchReader):
            raise EditRefused(f"{where}: its data is a stream that another write() has read; provide it again")
        self.taken.append(True)
        return self.data


@dataclass(frozen=True)
class PlannedState:
    """A state of the new savepoint: the rows of ``origin``, changed by ``steps``. ``rekeyed``: whether its keys change."""

    info: StateInfo
    origin: SavedRows | ExternalData
    steps: tuple[Step, ...] = ()
    rekeyed: bool = False

    def after(self, step: Step) -> PlannedState:
        """The state with one more step. Raises EditRefused for external data."""
        if isinstance(self.origin, ExternalData):
            raise EditRefused(f"{self.info.where} is written from external data: change the data instead")
        return replace(self, info=step.after(self.info), steps=(*self.steps, step))

    def named(self, uid: str, name: str) -> PlannedState:
        return replace(self, info=self.info.named(uid, name))


def described(uid: str, descriptor: StateDescriptor, key_type: TypeInformation, old: PlannedState | None) -> PlannedState:
    """The state that a descriptor declares, without rows. It keeps the windows, versions and fingerprint of the state that
    it replaces. Raises EditRefused if that is window state of another kind."""
    kind = getattr(descriptor, "kind", None) if isinstance(descriptor, StateDescriptor) else None
    if kind is None:
        raise EditRefused(f"operator {uid!r}: {descriptor!r} does not declare keyed state; give a state descriptor")
    namespace = descriptor.key_type if isinstance(descriptor, MapStateDescriptor) else None
    ttl_ms = None if descriptor.ttl is None else descriptor.ttl.ttl_ms
    info = StateInfo.of(uid, descriptor.name, kind, key_type, descriptor.value_type, namespace, ttl_ms)
    empty = ExternalData((), {})
    if old is None:
        return PlannedState(info, empty)
    kept: dict[str, Any] = {name: getattr(old.info, name) for name in ("fingerprint", "version", "key_version")}
    if old.info.kind != "map" and old.info.namespace_type is not None:
        if kind != old.info.kind:
            raise EditRefused(
                f"{old.info.where} belongs to windows and is {old.info.kind} state; {type(descriptor).__name__} is not"
            )
        kept["namespace_type"] = old.info.namespace_type
    return replace(old, info=info.replace(**kept), origin=empty, steps=(), rekeyed=False)
