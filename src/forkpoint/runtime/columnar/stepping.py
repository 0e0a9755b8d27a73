"""Keyed functions with state that are expressions, computed over columns as long as they agree with Python.

Two kernels share the state, as for running aggregates. Some keys of each epoch are also computed in Python, from the same states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from forkpoint.functions import KeyedProcessFunction, ValueState, declared_states
from forkpoint.runtime.columnar.keys import GroupedRows, key_columns, key_parts, parts_of
from forkpoint.runtime.columnar.leaves import Codec, numbers
from forkpoint.runtime.columnar.objects import as_columns
from forkpoint.runtime.columnar.recurrences import Recurrences
from forkpoint.runtime.columnar.segments import Bools, Segments, ranges
from forkpoint.runtime.exchange.batch import NO_TIMESTAMP_MS, Batch, DerivedBatch, Longs
from forkpoint.runtime.expressions.functions import OverColumns
from forkpoint.runtime.expressions.kernels import InPython, Ints, as_array, taken
from forkpoint.runtime.expressions.screening import NotAnExpression
from forkpoint.runtime.expressions.steps import StateColumns, Stepping
from forkpoint.runtime.expressions.tracing import Traced
from forkpoint.runtime.operators.base import Epoch, KeyedOperator, Outputs, TaskInfo
from forkpoint.runtime.operators.keyed_functions import STATE_NAME, MapWithState, OneValue
from forkpoint.runtime.operators.keyed_process import KeyedProcess
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation

_SAMPLED_ROWS = 16
_WORTH = 300  # elements; Python is faster for fewer

Replay = Callable[[Sequence[Any], Sequence[Any], Any, Sequence[Any]], tuple[list[Any], list[Any]]]
"""From elements of one key, its states, the key, and the timestamps to the outputs and new states, in Python."""


@dataclass(frozen=True)
class Saved:
    """The states of the epoch's keys as they are saved. ``names``: their store keys."""

    names: list[bytes]
    there: Bools
    fields: list[pa.Array]


class SteppingKernel:
    """A keyed function with state over columns. ``writes_all``: whether the state of every key is written, also an equal one."""

    def __init__(
        self, info: TaskInfo, backend: KeyedBackend, of: Stepping, names: Sequence[str], replay: Replay, *, writes_all: bool
    ) -> None:
        key, output = info.operator.key, info.operator.output_type
        assert key is not None
        assert output is not None
        self._key, self._parts = key, key_parts(key, of.elements)
        self._of, self._output, self._replay, self._writes_all = of, output, replay, writes_all
        self._max_parallelism, self._store = backend.max_parallelism, backend.store
        self._states = [(state, backend.sid(name), Codec(state.type)) for state, name in zip(of.states, names, strict=True)]
        self._checked = OverColumns(info.operator.uid, replay, Traced((), None, of.needed, of.screened), of.elements, output)
        self._sampled: int | None = None

    @property
    def usable(self) -> bool:
        return self._parts is not None and self._checked.usable

    def compute(self, batch: Batch, epoch: Epoch) -> tuple[Outputs, ChangeLog] | None:
        """None if Python has to compute the epoch."""
        if self._parts is None or not self._checked.holds(batch):
            return None
        columns = key_columns(batch, self._key, self._parts)
        if columns is None:
            return None
        try:
            return self._computed(batch, columns, epoch)
        except InPython:
            return None
        except Exception as error:
            self._checked.give_up(f"they raise {type(error).__name__}: {error}")
            return None

    def _computed(self, batch: Batch, keys: list[pa.Array], epoch: Epoch) -> tuple[Outputs, ChangeLog] | None:
        assert batch.table is not None
        groups = in_order_of_elements(GroupedRows.of(keys, self._key, self._max_parallelism), keys)
        segments = Segments(batch.table, groups.order, groups.starts, np.arange(len(groups.starts) - 1))
        saved = [self._read(groups, sid, codec) for _, sid, codec in self._states]
        order = pa.array(groups.order)
        columns: dict[int, Any] = {i: partial(column.take, order) for i, column in enumerate(batch.table.columns)}
        columns[self._of.timestamp] = self._stamps(batch, groups.order)
        for number, part in enumerate(parts_of(groups.keys.column, self._key), self._of.timestamp + 1):
            columns[number] = partial(part.take, pa.array(segments.of_row))
        seeds: dict[int, Any] = {}
        for (state, _, _), of in zip(self._states, saved, strict=True):
            seeds[state.there] = of.there
            seeds.update((column, loaded(field)) for column, field in zip(state.columns, of.fields, strict=True))
        found = Recurrences(self._of, columns, segments, seeds)
        found.compute()
        table, rows = self._emitted(found, batch.size)
        if self._sampled != epoch.id:
            self._sampled = epoch.id
            if not self._agrees(found, groups, batch, saved, table, rows):
                return None
        log = ChangeLog()
        for (state, _, codec), of in zip(self._states, saved, strict=True):
            self._write(log, state, codec, of, found, len(groups.starts) - 1)
        at = groups.order if rows is None else groups.order[rows]
        return Outputs(DerivedBatch.of(batch, at, table=table, type=self._output)), log

    def _stamps(self, batch: Batch, order: Longs) -> Any:
        if not self._of.reads_timestamps:
            return None
        if batch.timestamps is None or (batch.timestamps == NO_TIMESTAMP_MS).any():
            raise InPython
        return Ints(batch.timestamps[order])

    # -- states

    def _read(self, groups: GroupedRows, sid: int, codec: Codec) -> Saved:
        names = groups.keys.names(sid)
        read = codec.read(self._store, names)
        if read is None:
            raise InPython
        leaves, at = read
        there = np.asarray(at >= 0)
        if any(leaf.null_count for leaf in leaves):
            raise InPython
        at = pa.array(np.where(there, at, 0))
        types = [of.arrow_type for of in codec.types]
        fields = [leaf.take(at) if len(leaf) else empty(of, len(names)) for leaf, of in zip(leaves, types, strict=True)]
        return Saved(names, there, fields)

    def _write(self, log: ChangeLog, state: StateColumns, codec: Codec, saved: Saved, found: Recurrences, count: int) -> None:
        there = found.last(state.there)
        fields = [self._column(found, column, of) for column, of in zip(state.columns, state.types, strict=True)]
        writes = there if self._writes_all else there & ~saved.there
        for new, old in zip(fields, saved.fields, strict=True) if not self._writes_all else ():
            writes |= there & differs(new, old)
        removes = ~there if self._writes_all else ~there & saved.there
        if writes.all():
            log.add(saved.names, codec.encode(fields))
            return
        written = np.flatnonzero(writes)
        log.add([saved.names[i] for i in written.tolist()], codec.encode([field.take(pa.array(written)) for field in fields]))
        log.delete([saved.names[i] for i in np.flatnonzero(removes).tolist()])

    def _column(self, found: Recurrences, column: int, of: TypeInformation) -> pa.Array:
        """A state's column after the last row of each key; that it fits after each row, too."""
        after = found.after(column)
        if isinstance(after, Ints) and of.arrow_type.bit_width < 64:
            as_array(after, of.arrow_type, len(after.data))
        return as_array(found.last(column), of.arrow_type, 0)

    # -- outputs

    def _emitted(self, found: Recurrences, size: int) -> tuple[pa.RecordBatch, Longs | None]:
        """The outputs by key, and their rows; None if each row has one."""
        parts, places = [], []
        schema, emitted = self._output.arrow_schema, self._of.step.emitted
        for number, each in enumerate(emitted):
            where = found.evaluation.mask(each.when)
            evaluation = found.evaluation
            rows = np.flatnonzero(where)
            try:
                columns = [evaluation.array(node, field.type) for node, field in zip(each.what[0], schema, strict=True)]
                columns = columns if len(rows) == size else [column.take(pa.array(rows)) for column in columns]
            except InPython:
                if len(rows) == size:
                    raise
                evaluation = evaluation.of_rows(rows)
                columns = [evaluation.array(node, field.type) for node, field in zip(each.what[0], schema, strict=True)]
            if any(column.null_count and not field.nullable for column, field in zip(columns, schema, strict=True)):
                raise InPython
            parts.append(pa.RecordBatch.from_arrays(columns, schema=schema))
            places.append(rows * len(emitted) + number)
        if len(parts) == 1:
            return parts[0], None if len(places[0]) == size else places[0]
        if not parts:
            return pa.RecordBatch.from_pylist([], schema=schema), np.empty(0, np.int64)
        place = np.concatenate(places)
        order = np.argsort(place)
        return pa.concat_batches(parts).take(pa.array(order)), place[order] // len(emitted)

    # -- comparison with Python

    def _agrees(
        self,
        found: Recurrences,
        groups: GroupedRows,
        batch: Batch,
        saved: list[Saved],
        table: pa.RecordBatch,
        rows: Longs | None,
    ) -> bool:
        encode, accept, count = self._output.encode, self._output.accept, len(groups.starts) - 1
        for key in sampled_keys(count, saved):
            start = int(groups.starts[key])
            stop = min(int(groups.starts[key + 1]), start + _SAMPLED_ROWS)
            first, last = (start, stop) if rows is None else np.searchsorted(rows, (start, stop)).tolist()
            outputs = self._output.from_columns(table.slice(first, last - first).columns)
            picked = groups.order[start:stop]
            stamps = [None] * len(picked) if batch.timestamps is None else batch.timestamps[picked].tolist()
            before, after = [], []
            for (state, _, _), of in zip(self._states, saved, strict=True):
                at = np.array([stop - 1])
                parts = zip(state.columns, state.types, strict=True)
                columns = [as_array(taken(found.after(column), at), of_field.arrow_type, 1) for column, of_field in parts]
                before.append(value_of(state.type, bool(of.there[key]), [field.slice(key, 1) for field in of.fields]))
                after.append(value_of(state.type, bool(found.after(state.there)[stop - 1]), columns))
            try:
                name = groups.keys.type.from_arrow(groups.keys.column.slice(key, 1))[0]
                given, states = self._replay(batch.objects(picked), before, name, stamps)
                in_python = [encode(accept(each)) for each in given], _encoded(self._of, states)
            except Exception as error:
                self._checked.give_up(f"in Python, it raises {type(error).__name__}")
                return False
            if (list(map(encode, outputs)), _encoded(self._of, after)) != in_python:
                self._checked.give_up("its results over columns are others than in Python")
                return False
        return True


def sampled_keys(count: int, saved: Sequence[Saved]) -> list[int]:
    """The keys of an epoch that are also computed in Python, with a state and without."""
    of_states = [key for of in saved[:1] for key in (int(of.there.argmin()), int(of.there.argmax()))]
    return sorted({0, count // 2, count - 1, *of_states})


def _encoded(of: Stepping, states: Sequence[Any]) -> list[bytes | None]:
    pairs = zip(of.states, states, strict=True)
    return [None if value is None else state.type.encode(state.type.accept(value)) for state, value in pairs]


def value_of(of: TypeInformation, there: bool, columns: list[pa.Array]) -> Any:
    return of.from_columns(columns)[0] if there else None


def loaded(column: pa.Array) -> Any:
    """A column of a state as expressions read it."""
    if pa.types.is_string(column.type):
        return column
    values = numbers(column)
    return Ints(values.astype(np.int64, copy=False)) if pa.types.is_integer(column.type) else values


def empty(of: pa.DataType, rows: int) -> pa.Array:
    nothing = "" if pa.types.is_string(of) else False if pa.types.is_boolean(of) else 0
    return pa.repeat(pa.scalar(nothing, of), rows)


def differs(new: pa.Array, old: pa.Array) -> Bools:
    """Where the saved bytes of two columns differ."""
    if pa.types.is_floating(new.type):
        new, old = (column.view(pa.int64()) for column in (new, old))
    return np.asarray(numbers(new) != numbers(old))


def in_order_of_elements(groups: GroupedRows, columns: Sequence[pa.Array]) -> GroupedRows:
    """Keys in the order in which Python meets them: integers in theirs, others in that of their first elements."""
    if len(columns) == 1 and (pa.types.is_integer(columns[0].type) or pa.types.is_string(columns[0].type)):
        return groups
    by_first = np.argsort(groups.order[groups.starts[:-1]])
    sizes = np.diff(groups.starts)[by_first]
    keys = groups.keys
    return GroupedRows(
        type(keys)(keys.column.take(pa.array(by_first)), keys.type, keys.max_parallelism),
        groups.order[ranges(groups.starts[:-1][by_first], sizes)],
        np.concatenate(([0], np.cumsum(sizes))),
    )


class SteppingOperator(KeyedOperator):
    """Runs a function over columns if the epoch allows it, else by ``elements``. ``has_timers``: whether timers are saved, which
    an earlier version of the function has left."""

    def __init__(
        self, elements: OneValue | KeyedProcess, backend: KeyedBackend, kernel: SteppingKernel, has_timers: Callable[[], bool]
    ) -> None:
        self._elements, self._backend, self._kernel, self._has_timers = elements, backend, kernel, has_timers
        self._log: ChangeLog | None = None

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        usable = inputs[0].size >= _WORTH and self._kernel.usable and not self._has_timers()
        computed = self._kernel.compute(as_columns(inputs[0]), epoch) if usable else None
        if computed is None:
            self._log = None
            return self._elements.run(inputs, epoch)
        outputs, self._log = computed
        return outputs

    def next_processing_timer_ms(self) -> int | None:
        return self._elements.next_processing_timer_ms() if self._has_timers() else None

    def close(self) -> None:
        self._elements.close()

    def changes(self) -> ChangeLog:
        log, self._log = self._log, None
        return self._elements.changes() if log is None else log


def with_columns(
    info: TaskInfo, backend: KeyedBackend, elements: MapWithState, find: Callable[[], Stepping]
) -> OneValue | SteppingOperator:
    """``map_with_state``, over columns where that is possible."""
    of = _found(info, find)
    if of is None:
        return elements
    kernel = SteppingKernel(info, backend, of, [STATE_NAME], replayed(elements.fn, flat=elements.flat), writes_all=True)
    return SteppingOperator(elements, backend, kernel, lambda: False)


def process_with_columns(
    info: TaskInfo, backend: KeyedBackend, elements: KeyedProcess, function: Any, find: Callable[[], Stepping]
) -> KeyedProcess | SteppingOperator:
    """A keyed process function, over columns where that is possible."""
    of = _found(info, find)
    if of is None:
        return elements
    states = declared_states(function)
    names = [descriptor.name for descriptor in states.values()]
    kernel = SteppingKernel(info, backend, of, names, partial(replay_process, function, states), writes_all=False)
    return SteppingOperator(elements, backend, kernel, elements.has_timers)


def _found(info: TaskInfo, find: Callable[[], Stepping]) -> Stepping | None:
    try:
        return find() if info.operator.over_columns else None
    except NotAnExpression:
        return None


def replayed(function: Callable[[Any, Any], tuple[Any, Any]], *, flat: bool) -> Replay:
    """A function of an element and a state, for the elements of one key."""

    def replay(elements: Sequence[Any], states: Sequence[Any], *_: Any) -> tuple[list[Any], list[Any]]:
        (state,) = states
        outputs: list[Any] = []
        for element in elements:
            result, state = function(element, state)
            outputs.extend((result or ()) if flat else (result,))
        return outputs, [state]

    return replay


class _Now(ValueState[Any, Any]):
    """The value of one key."""

    def __init__(self, now: Any, default: Any) -> None:
        self.now, self._default = now, default

    def value(self) -> Any:
        return self._default if self.now is None else self.now

    def update(self, value: Any) -> None:
        self.now = value

    def clear(self) -> None:
        self.now = None


class _At(KeyedProcessFunction.Context[Any]):
    """The context of one key's elements."""

    def __init__(self, key: Any) -> None:
        self._key, self.stamp = key, None

    def get_current_key(self) -> Any:
        return self._key

    def timestamp(self) -> int | None:
        return self.stamp

    def timer_service(self) -> NoReturn:
        raise AssertionError("not an expression")


def replay_process(
    function: Any, states: Mapping[str, Any], elements: Sequence[Any], values: Sequence[Any], key: Any, stamps: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    own, context = object.__new__(type(function)), _At(key)
    outputs: list[Any] = []
    held = [_Now(value, descriptor.default_value) for value, descriptor in zip(values, states.values(), strict=True)]
    own.__dict__.update({**function.__dict__, **dict(zip(states, held, strict=True))})
    for element, context.stamp in zip(elements, stamps, strict=True):
        outputs.extend(own.process_element(element, context) or ())
    return outputs, [each.now for each in held]
