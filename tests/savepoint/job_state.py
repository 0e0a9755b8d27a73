"""A job's state without a job: real handles, changelogs, snapshots and manifests on real storage, beside a plain model.

``Cluster.epoch`` does what the driver and its tasks do in an epoch, for one stateful operator at stage 1.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.manifest import (
    MANIFEST,
    ChangesRef,
    Manifest,
    OperatorInfo,
    Parent,
    SnapshotRef,
    SourcePosition,
)
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.functions import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from forkpoint.runtime.event_time.timers import Timers
from forkpoint.runtime.exchange.control import EpochContext
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.runtime.state.operator_state import OperatorState
from forkpoint.runtime.tasks.committed_state import Share
from forkpoint.runtime.tasks.subtask_store import SubtaskState
from forkpoint.savepoint.restore.restore_plan import StateMapping
from forkpoint.state import (
    OPERATOR_KG,
    Changes,
    key_group,
    key_group_range,
    key_hash,
    range_for,
    subtask_of,
    write_changes,
    write_snapshot,
)
from forkpoint.state.dict_store import DictStore
from forkpoint.storage.base import Storage
from forkpoint.types import TypeInformation

UID = "counts by user"
FAR_MS = 10**12
TTL_MS = 10**9


class Longest(AggregateFunction):
    """Accumulates (count, sum)."""

    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return (accumulator[0] + 1, accumulator[1] + value)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return (a[0] + b[0], a[1] + b[1])


@dataclass
class States:
    """One subtask's live handles."""

    value: Any
    aged: Any
    events: Any
    aged_events: Any
    table: Any
    aged_table: Any
    total: Any
    mean: Any
    timers: Timers


@dataclass
class Model:
    """What the state of one key should be."""

    value: Any = None
    aged: Any = None
    events: list[Any] = field(default_factory=list)
    aged_events: list[Any] = field(default_factory=list)
    table: dict[Any, Any] = field(default_factory=dict)
    aged_table: dict[Any, Any] = field(default_factory=dict)
    total: Any = None
    mean: Any = None
    event_timers: set[int] = field(default_factory=set)
    processing_timers: set[int] = field(default_factory=set)


@dataclass
class Subtask:
    index: int
    state: SubtaskState


class Cluster:
    """A job with one operator at some parallelism. ``types``: of keys, values and map keys."""

    def __init__(
        self,
        storage: Storage,
        job: str,
        parallelism: int,
        max_parallelism: int,
        types: tuple[TypeInformation, TypeInformation, TypeInformation],
        epoch: int = 1,
        parent: Parent | None = None,
        snapshots: Iterable[SnapshotRef] = (),
        states: Iterable[StateMapping] = (),
    ) -> None:
        self.storage, self.paths = storage, JobPaths(job)
        self.parallelism, self.max_parallelism = parallelism, max_parallelism
        self.key_type, self.value_type, self.space_type = types
        self.subtasks = [self._subtask(i) for i in range(parallelism)]
        self.manifest = Manifest(
            job=job,
            run="r1",
            generation=1,
            epoch=epoch,
            kind="start",
            created_ms=5,
            processing_time_ms=7,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            snapshots=list(snapshots),
            states=[m.target for m in states],
            parent=parent or Parent(),
            operators=[OperatorInfo(uid=UID, name="Counts", kind="process", stage=1)],
            watermarks={UID: 99},
            sources={"in": SourcePosition(kind="native", position={"row": 3}, spark_log={"0": "v1\n{}"})},
        )
        self._commit()

    def _subtask(self, index: int) -> Subtask:
        start, stop = key_group_range(index, self.parallelism, self.max_parallelism)
        return Subtask(index, SubtaskState(DictStore(), self.storage, self.paths, Share(index, start, stop)))

    def _commit(self) -> None:
        self.storage.create(self.paths.manifest(self.manifest.epoch), MANIFEST.dump(self.manifest))

    def context(self) -> EpochContext:
        committed = self.manifest.epoch
        return EpochContext(1, committed + 1, committed, 1000 + committed, False, {}, {}, {}, [])

    def owner(self, key: Any) -> int:
        group = key_group(key_hash(key, self.key_type), self.max_parallelism)
        return subtask_of(group, self.parallelism, self.max_parallelism)

    def backend(self, subtask: Subtask) -> tuple[KeyedBackend, States]:
        backend = KeyedBackend(UID, self.key_type, self.max_parallelism, subtask.state.store)
        value, space, ttl = self.value_type, self.space_type, StateTtlConfig.new_builder(TTL_MS).build()
        states = States(
            backend.get(ValueStateDescriptor("value", value)),
            backend.get(ValueStateDescriptor("aged", value).enable_time_to_live(ttl)),
            backend.get(ListStateDescriptor("events", value)),
            backend.get(ListStateDescriptor("aged events", value).enable_time_to_live(ttl)),
            backend.get(MapStateDescriptor("table", space, value)),
            backend.get(MapStateDescriptor("aged/table", space, value).enable_time_to_live(ttl)),
            backend.get(ReducingStateDescriptor("total", lambda a, b: a + b, int)),
            backend.get(AggregatingStateDescriptor("mean", Longest(), tuple[int, int])),
            Timers(backend),
        )
        return backend, states

    def epoch(
        self,
        changes: dict[Any, Callable[[States], None]],
        operator_changes: dict[int, Callable[[OperatorState], None]] | None = None,
        snapshot: Iterable[int] = (),
        inline: bool = True,
    ) -> None:
        """Commit an epoch in which each key, and each subtask's operator state, is changed by its function."""
        refs, snapshots, records = [], list(self.manifest.snapshots), {s.sid: s for s in self.manifest.states}
        context = self.context()
        for subtask in self.subtasks:
            subtask.state.catch_up(context)
            if subtask.index in snapshot:
                new = self._snapshot(subtask, context.committed)
                snapshots = [ref for ref in snapshots if ref.subtask != subtask.index] + [new]
            backend, states = self.backend(subtask)
            mine = [key for key in changes if self.owner(key) == subtask.index]
            backend.begin(mine, context.processing_time_ms, lambda: 0)
            states.timers.begin(-FAR_MS, -FAR_MS)
            for index, key in enumerate(mine):
                backend.enter(index)
                states.timers.enter(index)
                changes[key](states)
                backend.leave()
            log_timers = backend_log(backend, states)
            operator = OperatorState(subtask.state.store, UID, subtask.index, restored=True)
            lists(operator)
            (operator_changes or {}).get(subtask.index, lambda state: None)(operator)
            for record in [*backend.records, *operator.records]:
                records[record.sid] = record
            extra = operator.collect()
            log = Changes(log_timers.keys + extra.keys, log_timers.values + extra.values)
            if len(log):
                refs.append(self._changes(subtask.index, context.epoch, log, inline))
        self.manifest = self.manifest.replace(
            epoch=context.epoch,
            kind="epoch",
            changes=refs,
            snapshots=snapshots,
            states=list(records.values()),
            processing_time_ms=context.processing_time_ms,
        )
        self._commit()

    def _changes(self, subtask: int, epoch: int, log: Changes, inline: bool) -> ChangesRef:
        data = write_changes(log)
        start, stop = key_group_range(subtask, self.parallelism, self.max_parallelism)
        path = None if inline else self.paths.changelog(epoch, 1, subtask, "a")
        if path is not None:
            self.storage.put(path, data)
        return ChangesRef(
            stage=1,
            subtask=subtask,
            attempt="a",
            path=path,
            inline=base64.b64encode(data).decode() if inline else None,
            entries=len(log),
            bytes=len(data),
            checksum=checksum(data),
            kg_start=start,
            kg_stop=stop,
        )

    def _snapshot(self, subtask: Subtask, epoch: int) -> SnapshotRef:
        entries = list(subtask.state.store.scan(*range_for(0, OPERATOR_KG + 1)))
        data = write_snapshot(entries)
        path = self.paths.snapshot(epoch, subtask.index, "a")
        self.storage.put(path, data)
        start, stop = key_group_range(subtask.index, self.parallelism, self.max_parallelism)
        return SnapshotRef(
            subtask=subtask.index,
            attempt="a",
            epoch=epoch,
            path=path,
            entries=len(entries),
            bytes=len(data),
            checksum=checksum(data),
            kg_start=start,
            kg_stop=stop,
        )

    # -- reading it all back

    def read(self, keys: Iterable[Any]) -> dict[Any, Model]:
        """The state of each of these keys, through the handles."""
        found: dict[Any, Model] = {}
        for subtask in self.subtasks:
            subtask.state.catch_up(self.context())
            backend, states = self.backend(subtask)
            mine = [key for key in keys if self.owner(key) == subtask.index]
            backend.begin(mine, 1500, lambda: 0)
            states.timers.begin(FAR_MS, FAR_MS)
            for index, key in enumerate(mine):
                backend.enter(index)
                states.timers.enter(index)
                found[key] = Model(
                    states.value.value(),
                    states.aged.value(),
                    list(states.events.get()),
                    list(states.aged_events.get()),
                    dict(states.table.items()),
                    dict(states.aged_table.items()),
                    states.total.get(),
                    states.mean.get(),
                    {time for time, _ in states.timers.event.heap},
                    {time for time, _ in states.timers.processing.heap},
                )
                backend.leave()
        return found

    def operator_lists(self) -> list[tuple[list[Any], list[Any]]]:
        """Each subtask's operator list and union list."""
        found = []
        for subtask in self.subtasks:
            subtask.state.catch_up(self.context())
            plain, union = lists(OperatorState(subtask.state.store, UID, subtask.index, restored=True))
            found.append((plain.get(), union.get()))
        return found

    def entries(self) -> int:
        """How many entries all stores have."""
        everything = range_for(0, OPERATOR_KG + 1)
        return sum(1 for subtask in self.subtasks for _ in subtask.state.store.scan(*everything))


def lists(state: OperatorState) -> tuple[Any, Any]:
    plain = state.get_list_state(ListStateDescriptor("buffer", str))
    return plain, state.get_union_list_state(ListStateDescriptor("offsets", tuple[str, int]))


def backend_log(backend: KeyedBackend, states: States) -> Changes:
    from forkpoint.runtime.state.keyed_backend import ChangeLog

    timers = ChangeLog()
    states.timers.collect(timers)
    log = backend.collect()
    return Changes(log.keys + timers.keys, log.values + timers.values)
