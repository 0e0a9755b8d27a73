"""Harnesses for single operators: push elements, watermarks and time; inspect output, state and timers.

The operator runs as in a job, on in-memory stores. Each push is a separate epoch, committed at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Self

import msgspec
import numpy as np

from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.api.streams.streams import DataStream
from forkpoint.checkpoint.states import state_id
from forkpoint.decoders import msgpack_decoder
from forkpoint.errors import GraphError
from forkpoint.functions import MetricGroup, OutputTag, WatermarkStrategy
from forkpoint.functions.watermarks import epoch_ms
from forkpoint.graph.compile import compile_graph
from forkpoint.graph.job import InEdge, Operator
from forkpoint.graph.options import DEFAULT_MAX_PARALLELISM, JobOptions
from forkpoint.graph.transformations import Broadcast, KeyBy
from forkpoint.runtime.event_time.timers import EVENT_TIMERS, PROCESSING_TIMERS, timer_ms, to_flink_ms
from forkpoint.runtime.event_time.watermarks import MAX_MS, MIN_MS, Window
from forkpoint.runtime.exchange.batch import NO_TIMESTAMP_MS, Batch, empty_batch
from forkpoint.runtime.exchange.grouping import key_groups, route
from forkpoint.runtime.operators.base import Epoch, TaskInfo
from forkpoint.runtime.operators.instances import Checkpointed, make_instance
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.savepoint.format.entries import redistribute
from forkpoint.state import (
    OPERATOR_KG,
    Changes,
    Columns,
    Store,
    change_columns,
    decode_state_key,
    decode_timer_key,
    hash_keys,
    key_group,
    key_group_range,
    range_for,
    read_snapshot,
    read_snapshot_columns,
    sid_of,
    sid_range,
    subtask_of,
    write_snapshot,
)
from forkpoint.state.dict_store import DictStore
from forkpoint.testing.clock import ManualClock
from forkpoint.testing.sink import Record, records_of
from forkpoint.testing.source import TestSource


class HarnessSnapshot(msgspec.Struct, frozen=True):
    """``watermarks_ms``: by input. ``files``: snapshots of all subtasks' stores."""

    watermarks_ms: list[int]
    processing_time_ms: int
    max_parallelism: int
    operator_kinds: dict[int, str]
    files: list[bytes]

    def keyed(self, kg_start: int, kg_stop: int) -> list[Columns]:
        """The entries of these key groups."""
        return [chunk for file in self.files for chunk in read_snapshot_columns(file, kg_start, kg_stop, "snapshot")]

    def operator_state(self, subtask: int, parallelism: int) -> Changes:
        """A subtask's share of the operator state."""
        entries: dict[int, list[tuple[bytes, bytes]]] = {}
        for file in self.files:
            for chunk in read_snapshot(file, OPERATOR_KG, OPERATOR_KG + 1):
                for key, value in zip(chunk.keys, chunk.values, strict=True):
                    entries.setdefault(sid_of(key), []).append((key, value or b""))
        keys: list[bytes] = []
        values: list[bytes | None] = []
        for sid, found in sorted(entries.items()):
            names, contents = [k for k, _ in found], [v for _, v in found]
            mine = redistribute(self.operator_kinds[sid], names, contents, subtask, len(self.files), parallelism)
            keys += mine[0]
            values += mine[1]
        return Changes(keys, values)


@dataclass
class _Subtask:
    store: Store
    instance: Any
    kg_start: int
    kg_stop: int
    metrics: MetricGroup

    @property
    def inner(self) -> Any:
        """The operator, without the wrapper that keeps operator state."""
        return self.instance.inner if isinstance(self.instance, Checkpointed) else self.instance


@dataclass
class _Collected:
    records: list[Record] = field(default_factory=list)
    taken: int = 0

    @property
    def values(self) -> list[Any]:
        return [record.value for record in self.records]

    def take(self) -> list[Any]:
        taken, self.taken = self.taken, len(self.records)
        return self.values[taken:]


class Harness:
    """The base class of all harnesses: an operator's subtasks, output, time, state and timers.

    ``build`` takes a stream per input type and adds exactly one operator; else GraphError. ``parallelism``: the number of
    subtasks; the subtask that owns an element's key processes it. ``restore``: the result of ``snapshot()`` of a similar
    harness, at this or another parallelism.

    A failing function raises UserFunctionError, with the original exception as ``__cause__``; then the harness is unusable.
    """

    def __init__(
        self,
        build: Callable[..., DataStream],
        input_types: Sequence[Any],
        *,
        parallelism: int = 1,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        parameters: dict[str, str] | None = None,
        clock: ManualClock | None = None,
        restore: bytes | None = None,
    ) -> None:
        saved = None if restore is None else msgpack_decoder(HarnessSnapshot)(restore)
        self._operator = _single_operator(build, input_types, parallelism, max_parallelism)
        self._max_parallelism = max_parallelism
        self._clock = clock or ManualClock(0)
        self._watermarks_ms = [MIN_MS] * len(input_types)
        self._epoch = 0
        self._sequence = 0
        self._main = _Collected()
        self._sides: defaultdict[str, _Collected] = defaultdict(_Collected)
        self._late_records_dropped = 0
        if saved is not None:
            if saved.max_parallelism != max_parallelism:
                raise GraphError(
                    f"the snapshot has max_parallelism {saved.max_parallelism}, the harness {max_parallelism}; "
                    "create the harness with the snapshot's max_parallelism"
                )
            self._watermarks_ms = list(saved.watermarks_ms)
            self._clock.set(saved.processing_time_ms)
        self._subtasks = [self._subtask(index, parallelism, parameters or {}, saved) for index in range(parallelism)]

    def _subtask(self, index: int, parallelism: int, parameters: dict[str, str], saved: HarnessSnapshot | None) -> _Subtask:
        start, stop = key_group_range(index, parallelism, self._max_parallelism)
        store = DictStore()
        if saved is not None:
            store.load([*saved.keyed(start, stop), change_columns(saved.operator_state(index, parallelism))], 1)
        info = TaskInfo(self._operator, index, parallelism, self._max_parallelism, parameters)
        instance, _ = make_instance(info, store if self._operator.stateful else None, restored=saved is not None)
        return _Subtask(store, instance, start, stop, info.metrics)

    # -- input

    def _process(self, ordinal: int, elements: Iterable[tuple[Any, int | datetime | None]]) -> None:
        """Push pairs of element and timestamp to an input as one epoch."""
        pairs = list(elements)
        operator, parallelism, now = self._operator, len(self._subtasks), self._watermark_ms
        stamps = [NO_TIMESTAMP_MS if t is None else epoch_ms(t) for _, t in pairs]
        batch = Batch(
            len(pairs),
            2 * now + 1,
            0,
            np.arange(self._sequence, self._sequence + len(pairs)),
            values=[v for v, _ in pairs],
            type=self._input(ordinal).type,
            timestamps=None if all(s == NO_TIMESTAMP_MS for s in stamps) else np.array(stamps, dtype=np.int64),
        )
        self._sequence += len(pairs)
        match self._input(ordinal).partitioning:
            case KeyBy() as key:
                groups = key_groups(batch, key, self._max_parallelism, operator.uid)
                targets = np.asarray(subtask_of(groups, parallelism, self._max_parallelism))
                parts = dict(route(batch, targets, parallelism))
            case Broadcast():
                parts = dict.fromkeys(range(parallelism), batch)
            case _:
                parts = dict(route(batch, batch.sequence % parallelism, parallelism))
        self._run(ordinal, parts, Window(now, now, now))

    def _input(self, ordinal: int) -> InEdge:
        return next(edge for edge in self._operator.inputs if edge.ordinal == ordinal)

    @property
    def _watermark_ms(self) -> int:
        return min(self._watermarks_ms)

    def _process_watermark(self, watermark: int | datetime, *ordinals: int) -> None:
        before, end = self._watermark_ms, max(MIN_MS, min(MAX_MS, epoch_ms(watermark)))
        for ordinal in ordinals:
            self._watermarks_ms[ordinal] = max(self._watermarks_ms[ordinal], end)
        if self._watermark_ms > before:
            self._run(0, {}, Window(before, before, self._watermark_ms))

    def process_watermark(self, watermark: int | datetime) -> None:
        """Advance event time: due timers fire. A watermark that is not newer than the last has no effect."""
        self._process_watermark(watermark, *range(len(self._watermarks_ms)))

    def set_processing_time(self, time: datetime | int) -> None:
        """Advance processing time to an aware datetime or int ms: due timers fire."""
        self._clock.set(time)
        self._run(0, {}, Window(self._watermark_ms, self._watermark_ms, self._watermark_ms))

    def advance_processing_time(self, by: timedelta | int) -> None:
        """Advance processing time by a timedelta or int ms: due timers fire."""
        self.set_processing_time(self._clock() + (by if isinstance(by, int) else by // timedelta(milliseconds=1)))

    def _run(self, ordinal: int, batches: dict[int, Batch], window: Window) -> None:
        self._epoch += 1
        epoch = Epoch(self._epoch, window, self._clock(), one_by_one=True)
        for index, subtask in enumerate(self._subtasks):
            inputs = [empty_batch(self._input(i).type) for i in range(len(self._watermarks_ms))]
            inputs[ordinal] = batches.get(index, inputs[ordinal])
            outputs = subtask.instance.run(inputs, epoch)
            self._late_records_dropped += outputs.late_records_dropped
            self._main.records += records_of(outputs.main.in_order(), self._epoch, index)
            for tag, side in outputs.sides.items():
                self._sides[tag].records += records_of(side.in_order(), self._epoch, index)
            if self._operator.stateful:
                log = subtask.instance.changes()
                version = subtask.store.version
                subtask.store.apply(Changes(log.keys, log.values), version + 1, version)

    # -- output

    @property
    def output(self) -> list[Any]:
        """All elements emitted so far."""
        return self._main.values

    @property
    def records(self) -> list[Record]:
        """All elements emitted so far, with timestamps."""
        return list(self._main.records)

    def take(self) -> list[Any]:
        """The elements emitted since the last call."""
        return self._main.take()

    def side_output(self, tag: OutputTag) -> list[Any]:
        """All elements of a side output so far."""
        return self._sides[tag.tag_id].values

    def take_side_output(self, tag: OutputTag) -> list[Any]:
        """The elements of a side output since the last call."""
        return self._sides[tag.tag_id].take()

    @property
    def late_records_dropped(self) -> int:
        """The number of late elements dropped so far."""
        return self._late_records_dropped

    # -- time

    @property
    def watermark(self) -> int:
        """The watermark in int ms; initially MIN_WATERMARK."""
        return to_flink_ms(self._watermark_ms)

    @property
    def processing_time(self) -> int:
        """Processing time in int ms; initially 0, unless the clock differs."""
        return self._clock()

    def metrics(self, subtask: int = 0) -> dict[str, float]:
        """The values of a subtask's metrics by name; a meter or distribution has several values, such as ``name.count``."""
        return dict(self._subtasks[subtask].metrics.values())

    # -- state and timers

    def state(self, name: str, key: Any) -> Any:
        """A state's content for a key: the value (None if empty), a list, a dict, or the result."""
        group = key_group(hash_keys([key], self._backend(name).key_type), self._max_parallelism)
        backend = self._backend(name, int(subtask_of(group, len(self._subtasks), self._max_parallelism)[0]))
        backend.begin([key], self._clock(), lambda: self._watermark_ms)
        backend.enter(0)
        handle: Any = backend.by_name[name][1]
        if hasattr(handle, "value"):
            found = handle.value()
        elif hasattr(handle, "items"):
            found = dict(handle.items())
        else:
            found = handle.get()
        backend.leave()
        backend.collect()  # discards changes: inspection must not even refresh a time to live
        return found

    def keys(self, name: str) -> list[Any]:
        """The keys that have state, in the order of key groups."""
        key_type = self._backend(name).key_type
        found = dict.fromkeys(decode_state_key(entry).key for entry, _ in self._entries(name))
        return list(map(key_type.decode, found))

    def states(self, name: str) -> dict[Any, Any]:
        """A state's content by key."""
        return {key: self.state(name, key) for key in self.keys(name)}

    def event_time_timers(self, key: Any = None) -> list[tuple[int, Any]]:
        """Pending event-time timers as (time in ms, key), ordered by time, of ``key`` or of all keys."""
        return self._timers(EVENT_TIMERS, key)

    def processing_time_timers(self, key: Any = None) -> list[tuple[int, Any]]:
        """Pending processing-time timers, in the same form."""
        return self._timers(PROCESSING_TIMERS, key)

    def _timers(self, name: str, key: Any) -> list[tuple[int, Any]]:
        key_type = self._operator.key.key_type if self._operator.key is not None else None
        if key_type is None:
            return []
        timers = [decode_timer_key(entry) for entry, _ in self._entries(name)]
        wanted = None if key is None else key_type.encode(key)
        found = sorted((timer_ms(timer.ts_ms), timer.key) for timer in timers if wanted in (None, timer.key))
        return [(time, key_type.decode(k)) for time, k in found]

    def _entries(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """The store entries of a keyed state in all subtasks, in the order of key groups."""
        sid = state_id(self._operator.uid, name)
        for subtask in self._subtasks:
            for group in range(subtask.kg_start, subtask.kg_stop):
                yield from subtask.store.scan(*sid_range(group, sid))

    def _backend(self, name: str, subtask: int = 0) -> KeyedBackend:
        backend: KeyedBackend | None = getattr(self._subtasks[subtask].inner, "_backend", None)
        if backend is None or name not in backend.by_name:
            known = sorted(backend.by_name) if backend is not None else []
            raise GraphError(f"the operator has no keyed state {name!r}; it has {known}")
        return backend

    # -- lifecycle

    def snapshot(self) -> bytes:
        """A checkpoint for ``restore=``: state, timers, watermark, processing time."""
        kinds = {
            record.sid: record.kind
            for subtask in self._subtasks
            if self._operator.stateful
            for record in subtask.instance.states()
            if record.is_operator_state
        }
        files = [write_snapshot(subtask.store.scan(*range_for(0, OPERATOR_KG + 1))) for subtask in self._subtasks]
        return msgspec.msgpack.encode(HarnessSnapshot(self._watermarks_ms, self._clock(), self._max_parallelism, kinds, files))

    def close(self) -> None:
        """Close the function."""
        for subtask in self._subtasks:
            subtask.instance.close()
            subtask.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _single_operator(
    build: Callable[..., DataStream], input_types: Sequence[Any], parallelism: int, max_parallelism: int
) -> Operator:
    env = StreamExecutionEnvironment(JobOptions(parallelism=parallelism, max_parallelism=max_parallelism))
    no_watermarks = WatermarkStrategy.no_watermarks()
    build(*(env.from_source(TestSource(type=type), no_watermarks, f"input-{i}") for i, type in enumerate(input_types, 1)))
    ends = env.transformations
    graph = compile_graph(ends, max_parallelism=max_parallelism, require_uids=False).graph if ends else None
    operators = [o for o in graph.operators if o.inputs] if graph is not None else []
    if len(operators) != 1:
        names = ", ".join(o.name for o in operators) or "none"
        raise GraphError(f"a harness is for one operator, but the function added {len(operators)}: {names}")
    return operators[0]
