"""Harnesses for single operators: push elements, watermarks and time; look at output, state and timers.

The operator runs as it does in a job, on stores in memory. Each push is an epoch of its own, committed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar

import msgspec
import numpy as np

from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.api.streams import DataStream, KeyedStream
from forkpoint.checkpoint.states import state_id
from forkpoint.errors import GraphError
from forkpoint.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    MetricGroup,
    OutputTag,
    ProcessFunction,
    WatermarkStrategy,
)
from forkpoint.functions.watermarks import epoch_ms
from forkpoint.graph.compile import compile_graph
from forkpoint.graph.job import InEdge, Operator
from forkpoint.graph.options import DEFAULT_MAX_PARALLELISM, JobOptions
from forkpoint.graph.transformations import Broadcast, KeyBy
from forkpoint.runtime.event_time.timers import EVENT_TIMERS, PROCESSING_TIMERS, timer_ms, to_flink_ms
from forkpoint.runtime.event_time.watermarks import MAX_MS, MIN_MS, Window
from forkpoint.runtime.exchange.batch import NO_TIMESTAMP_MS, Batch, empty_batch
from forkpoint.runtime.exchange.grouping import key_groups, route, subtasks
from forkpoint.runtime.operators.base import Epoch, TaskInfo
from forkpoint.runtime.operators.instances import Checkpointed, make_instance
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.state import (
    OPERATOR_KG,
    Changes,
    Store,
    decode_state_key,
    decode_timer_key,
    hash_keys,
    key_group,
    key_group_range,
    range_for,
    sid_range,
    subtask_of,
    write_snapshot,
)
from forkpoint.state.dict_store import DictStore
from forkpoint.testing.clock import ManualClock
from forkpoint.testing.harness_snapshot import HarnessSnapshot
from forkpoint.testing.sink import Record
from forkpoint.testing.source import TestSource
from forkpoint.types import TypeInformation

H = TypeVar("H", bound="Harness")


@dataclass
class _Subtask:
    store: Store
    instance: Any
    kg_start: int
    kg_stop: int
    metrics: MetricGroup

    @property
    def inner(self) -> Any:
        """The operator proper, without the part that keeps operator state."""
        return self.instance.inner if isinstance(self.instance, Checkpointed) else self.instance


@dataclass
class _Collected:
    records: list[Record] = field(default_factory=list)
    taken: int = 0


class Harness:
    """What all harnesses have: an operator's subtasks, its output, time, state and timers.

    ``build`` takes a stream for each of the ``input_types`` and adds exactly one operator; else GraphError.
    ``parallelism``: the operator runs as so many subtasks, each element on the one that owns its key. ``restore``: what
    ``snapshot()`` of such a harness returned, at this or another parallelism.

    A failing function raises UserFunctionError, with its own exception as ``__cause__``; the harness is of no use then.
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
        saved = None if restore is None else msgspec.msgpack.decode(restore, type=HarnessSnapshot)
        self._operator = _single_operator(build, input_types, parallelism, max_parallelism)
        self._max_parallelism = max_parallelism
        self._clock = clock or ManualClock(0)
        self._watermarks_ms = [MIN_MS] * len(input_types)
        self._epoch = 0
        self._sequence = 0
        self._main = _Collected()
        self._sides: dict[str, _Collected] = {}
        self._late_records_dropped = 0
        if saved is not None:
            if saved.max_parallelism != max_parallelism:
                raise GraphError(
                    f"the snapshot is of max_parallelism {saved.max_parallelism}, the harness has {max_parallelism}; "
                    "give the harness the same"
                )
            self._watermarks_ms = list(saved.watermarks_ms)
            self._clock.set(saved.processing_time_ms)
        self._subtasks = [
            self._subtask(index, parallelism, parameters or {}, saved) for index in range(parallelism)
        ]  # fmt: skip

    def _subtask(
        self, index: int, parallelism: int, parameters: dict[str, str], saved: HarnessSnapshot | None
    ) -> _Subtask:
        start, stop = key_group_range(index, parallelism, self._max_parallelism)
        store = DictStore()
        if saved is not None:
            store.load([*saved.keyed(start, stop), saved.operator_state(index, parallelism)], 1)
        info = TaskInfo(self._operator, index, parallelism, self._max_parallelism, parameters)
        instance, _ = make_instance(info, store if self._operator.stateful else None, restored=saved is not None)
        return _Subtask(store, instance, start, stop, info.metrics)

    # -- in

    def _process(self, ordinal: int, elements: Iterable[tuple[Any, int | datetime | None]]) -> None:
        """Push pairs of element and timestamp to an input as one epoch."""
        pairs = list(elements)
        operator, parallelism, now = self._operator, len(self._subtasks), self._watermark_ms
        stamps = [NO_TIMESTAMP_MS if t is None else epoch_ms(t) for _, t in pairs]
        batch = Batch(
            len(pairs), 2 * now + 1, 0, np.arange(self._sequence, self._sequence + len(pairs)),
            values=[v for v, _ in pairs], type=self._input(ordinal).type,
            timestamps=None if all(s == NO_TIMESTAMP_MS for s in stamps) else np.array(stamps, dtype=np.int64),
        )  # fmt: skip
        self._sequence += len(pairs)
        match self._input(ordinal).partitioning:
            case KeyBy() as key:
                groups = key_groups(batch, key, self._max_parallelism, operator.uid)
                parts = dict(route(batch, subtasks(groups, parallelism, self._max_parallelism), parallelism))
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
        """Move event time on: due timers fire. A watermark that is not ahead of the last one does nothing."""
        self._process_watermark(watermark, *range(len(self._watermarks_ms)))

    def set_processing_time(self, time: datetime | int) -> None:
        """Move processing time on to an aware datetime or int ms: due timers fire."""
        self._clock.set(time)
        self._run(0, {}, Window(self._watermark_ms, self._watermark_ms, self._watermark_ms))

    def advance_processing_time(self, by: timedelta | int) -> None:
        """Move processing time on by a timedelta or int ms: due timers fire."""
        self.set_processing_time(self._clock() + (by if isinstance(by, int) else by // timedelta(milliseconds=1)))

    def _run(self, ordinal: int, batches: dict[int, Batch], window: Window) -> None:
        self._epoch += 1
        epoch = Epoch(self._epoch, window, self._clock(), one_by_one=True)
        for index, subtask in enumerate(self._subtasks):
            inputs = [empty_batch(self._input(i).type) for i in range(len(self._watermarks_ms))]
            inputs[ordinal] = batches.get(index, inputs[ordinal])
            outputs = subtask.instance.run(inputs, epoch)
            self._late_records_dropped += outputs.late_records_dropped
            _collect(self._main, outputs.main.in_order(), self._epoch, index)
            for tag, side in outputs.sides.items():
                _collect(self._sides.setdefault(tag, _Collected()), side.in_order(), self._epoch, index)
            if self._operator.stateful:
                log = subtask.instance.changes()
                version = subtask.store.version
                subtask.store.apply(Changes(log.keys, log.values), version + 1, version)

    # -- out

    @property
    def output(self) -> list[Any]:
        """All elements that came out so far."""
        return [record.value for record in self._main.records]

    @property
    def records(self) -> list[Record]:
        """The same with timestamps."""
        return list(self._main.records)

    def take(self) -> list[Any]:
        """The elements that came out since the last call."""
        return _take(self._main)

    def side_output(self, tag: OutputTag) -> list[Any]:
        """All elements of a side output so far."""
        return [record.value for record in self._sides.get(tag.tag_id, _Collected()).records]

    def take_side_output(self, tag: OutputTag) -> list[Any]:
        """The elements of a side output since the last call."""
        return _take(self._sides.setdefault(tag.tag_id, _Collected()))

    @property
    def late_records_dropped(self) -> int:
        """How many elements came too late and went nowhere so far."""
        return self._late_records_dropped

    # -- time

    @property
    def watermark(self) -> int:
        """The watermark in int ms; MIN_WATERMARK before the first."""
        return to_flink_ms(self._watermark_ms)

    @property
    def processing_time(self) -> int:
        """Processing time in int ms; 0 at the start unless the clock says otherwise."""
        return self._clock()

    def metrics(self, subtask: int = 0) -> dict[str, float]:
        """The numbers of a subtask's metrics by name: ``bad_lines``, those of a meter and a distribution behind a dot."""
        return dict(self._subtasks[subtask].metrics.values())

    # -- state and timers

    def state(self, name: str, key: Any) -> Any:
        """What a state holds for a key: the value (None where empty), a list, a dict, or the result."""
        backend, key_type = self._backend(name)
        group = key_group(hash_keys([key], key_type), self._max_parallelism)
        subtask = self._subtasks[int(subtask_of(group, len(self._subtasks), self._max_parallelism)[0])]
        backend = self._backend(name, subtask)[0]
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
        backend.collect()  # looking changes nothing, not even a time to live
        return found

    def keys(self, name: str) -> list[Any]:
        """The keys that have something in a state, in the order of key groups."""
        _, key_type = self._backend(name)
        found: dict[bytes, None] = {}
        for subtask in self._subtasks:
            sid = self._backend(name, subtask)[0].sid(name)
            for group in range(subtask.kg_start, subtask.kg_stop):
                found.update((decode_state_key(k).key, None) for k, _ in subtask.store.scan(*sid_range(group, sid)))
        return list(map(key_type.decode, found))

    def states(self, name: str) -> dict[Any, Any]:
        """Everything that a state holds, by key."""
        return {key: self.state(name, key) for key in self.keys(name)}

    def event_time_timers(self, key: Any = None) -> list[tuple[int, Any]]:
        """Pending event-time timers as (time in ms, key), in the order of time; of one key, if one is given."""
        return self._timers(EVENT_TIMERS, key)

    def processing_time_timers(self, key: Any = None) -> list[tuple[int, Any]]:
        """Pending processing-time timers, likewise."""
        return self._timers(PROCESSING_TIMERS, key)

    def _timers(self, name: str, key: Any) -> list[tuple[int, Any]]:
        key_type = self._operator.key.key_type if self._operator.key is not None else None
        if key_type is None:
            return []
        found: list[tuple[int, bytes]] = []
        sid = state_id(self._operator.uid, name)
        for subtask in self._subtasks:
            for group in range(subtask.kg_start, subtask.kg_stop):
                for entry, _ in subtask.store.scan(*sid_range(group, sid)):
                    timer = decode_timer_key(entry)
                    found.append((timer_ms(timer.ts_ms), timer.key))
        wanted = None if key is None else key_type.encode_key(key)
        return [(time, key_type.decode(k)) for time, k in sorted(found) if wanted is None or k == wanted]

    def _backend(self, name: str, subtask: _Subtask | None = None) -> tuple[KeyedBackend, TypeInformation]:
        backend: KeyedBackend | None = getattr((subtask or self._subtasks[0]).inner, "_backend", None)
        if backend is None or name not in backend.by_name:
            known = sorted(backend.by_name) if backend is not None else []
            raise GraphError(f"the operator has no keyed state {name!r}; it has {known}")
        return backend, backend.key_type

    # -- life

    def snapshot(self) -> bytes:
        """Everything that a checkpoint keeps: state, timers, watermark, processing time. For ``restore=``."""
        kinds = {
            record.sid: record.kind
            for subtask in self._subtasks if self._operator.stateful
            for record in subtask.instance.states() if record.is_operator_state
        }  # fmt: skip
        files = [write_snapshot(subtask.store.scan(*range_for(0, OPERATOR_KG + 1))) for subtask in self._subtasks]
        return msgspec.msgpack.encode(
            HarnessSnapshot(self._watermarks_ms, self._clock(), self._max_parallelism, kinds, files)
        )

    def close(self) -> None:
        """Close the function."""
        for subtask in self._subtasks:
            subtask.instance.close()
            subtask.store.close()

    def __enter__(self: H) -> H:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OperatorHarness(Harness):
    """One operator with one input: ``OperatorHarness(lambda stream: stream.key_by("user").sum("amount"))``.

    ``build`` takes the stream of inputs and adds exactly one operator to it; else GraphError. ``input_type``: the
    elements' type. The other arguments are those of Harness.
    """

    def __init__(self, build: Callable[[DataStream], DataStream], *, input_type: Any = None, **more: Any) -> None:
        super().__init__(build, (input_type,), **more)

    def process_element(self, value: Any, timestamp: int | datetime | None = None) -> None:
        """Push one element. ``timestamp``: int ms or an aware datetime; None for an element without one."""
        self._process(0, [(value, timestamp)])

    def process_elements(self, elements: Iterable[tuple[Any, int | datetime | None]]) -> None:
        """Push pairs of element and timestamp as one epoch."""
        self._process(0, elements)


class KeyedProcessHarness(OperatorHarness):
    """A function on a keyed stream: a KeyedProcessFunction, or a MapFunction, FlatMapFunction or FilterFunction.

    ``key``, ``key_type``: as in ``key_by``. The other arguments are those of OperatorHarness.
    """

    def __init__(
        self,
        fn: KeyedProcessFunction | MapFunction | FlatMapFunction | FilterFunction,
        *,
        key: Any,
        key_type: Any = None,
        output_type: Any = None,
        **more: Any,
    ) -> None:
        def build(stream: DataStream) -> DataStream:
            keyed: KeyedStream = stream.key_by(key, key_type)
            match fn:
                case MapFunction():
                    return keyed.map(fn, output_type)
                case FlatMapFunction():
                    return keyed.flat_map(fn, output_type)
                case FilterFunction():
                    return keyed.filter(fn)
            return keyed.process(fn, output_type)

        super().__init__(build, **more)


class ProcessHarness(OperatorHarness):
    """A function on a stream without keys: a ProcessFunction, MapFunction, FlatMapFunction or FilterFunction.

    The other arguments are those of OperatorHarness.
    """

    def __init__(
        self,
        fn: ProcessFunction | MapFunction | FlatMapFunction | FilterFunction,
        *,
        output_type: Any = None,
        **more: Any,
    ) -> None:
        def build(stream: DataStream) -> DataStream:
            match fn:
                case MapFunction():
                    return stream.map(fn, output_type)
                case FlatMapFunction():
                    return stream.flat_map(fn, output_type)
                case FilterFunction():
                    return stream.filter(fn)
            return stream.process(fn, output_type)

        super().__init__(build, **more)


def _single_operator(
    build: Callable[..., DataStream], input_types: Sequence[Any], parallelism: int, max_parallelism: int
) -> Operator:
    env = StreamExecutionEnvironment(JobOptions(parallelism=parallelism, max_parallelism=max_parallelism))
    no_watermarks = WatermarkStrategy.no_watermarks()
    build(
        *(env.from_source(TestSource(type=type), no_watermarks, f"input-{i}") for i, type in enumerate(input_types, 1))
    )
    ends = env.transformations
    graph = compile_graph(ends, max_parallelism=max_parallelism, require_uids=False).graph if ends else None
    operators = [o for o in graph.operators if o.inputs] if graph is not None else []
    if len(operators) != 1:
        names = ", ".join(o.name for o in operators) or "none"
        raise GraphError(f"a harness is for one operator, and the function added {len(operators)}: {names}")
    return operators[0]


def _collect(into: _Collected, batch: Batch, epoch: int, subtask: int) -> None:
    stamps = [NO_TIMESTAMP_MS] * batch.size if batch.timestamps is None else batch.timestamps.tolist()
    into.records.extend(
        Record(value, None if stamp == NO_TIMESTAMP_MS else stamp, epoch, subtask)
        for value, stamp in zip(batch.values, stamps, strict=True)
    )


def _take(collected: _Collected) -> list[Any]:
    taken = [record.value for record in collected.records[collected.taken :]]
    collected.taken = len(collected.records)
    return taken
