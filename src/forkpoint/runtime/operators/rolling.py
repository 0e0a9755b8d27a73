"""Running aggregates of one field: sum, min, max over columns; min_by, max_by and columns-less input by elements.

As in Flink, an element comes out with the aggregated field replaced and all other fields from the key's first element
(min_by, max_by: the whole extreme element, the earlier one of equals).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.errors import GraphError
from forkpoint.graph.transformations import RollingSpec
from forkpoint.runtime.batch import Batch
from forkpoint.runtime.grouping import Groups, group_by_key
from forkpoint.runtime.keyed_state import KeyedBackend
from forkpoint.runtime.operators.base import Epoch, Outputs, TaskInfo
from forkpoint.runtime.operators.keyed_functions import Reduce
from forkpoint.types import Row, TypeInformation

_UFUNCS: dict[str, np.ufunc] = {"sum": np.add, "min": np.minimum, "max": np.maximum}
_LONG_SEGMENT = 512


class Rolling(Reduce):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: RollingSpec) -> None:
        super().__init__(info, backend, spec.value_type, rolling_function(spec, info.operator.uid))
        self._spec = spec
        self._column = _column_index(spec)

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        if self._column is None or batch.table is None or not batch.size:
            return super().run(inputs, epoch)
        column = batch.table.column(self._column)
        if column.null_count or not (pa.types.is_int64(column.type) or pa.types.is_float64(column.type)):
            return super().run(inputs, epoch)
        groups = group_by_key(batch, self._key)
        self._backend.begin(groups.keys, epoch.processing_time_ms, lambda: epoch.window.start)
        states = self._state.all_values()
        numbers = column.to_numpy()[groups.order]
        seeds = _seeds(states, self._spec.value_type, self._column, numbers, groups, self._spec.kind)
        if seeds is None or _may_differ(numbers, seeds, groups, self._spec.kind):
            self._state.begin()
            return super().run(inputs, epoch)
        running = segmented_accumulate(_UFUNCS[self._spec.kind], numbers, groups.starts, seeds)
        table = _with_first(batch.table, groups, states, self._spec.value_type, self._column, running)
        last = table.take(pa.array(groups.starts[1:] - 1))
        self._state.set_all(self._spec.value_type.from_columns(last.columns))
        return Outputs(batch.with_table(table, groups.order, self._spec.value_type))


def segmented_accumulate(
    ufunc: np.ufunc, numbers: npt.NDArray[Any], starts: npt.NDArray[np.int64], seeds: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """``ufunc.accumulate`` within each segment, each beginning from its seed, strictly from left to right.

    Segments are worked through side by side, one element of each at a time, so that floating-point results are those
    of a loop over elements; a long segment is cheaper by itself.
    """
    counts = np.diff(starts)
    result = np.empty_like(numbers)
    for s in np.flatnonzero(counts > _LONG_SEGMENT).tolist():
        a, b = starts[s], starts[s + 1]
        result[a:b] = ufunc.accumulate(np.concatenate((seeds[s : s + 1], numbers[a:b])))[1:]
    short = np.flatnonzero(counts <= _LONG_SEGMENT)
    by_length = short[np.argsort(-counts[short], kind="stable")]
    lengths, at, acc = counts[by_length], starts[by_length].copy(), seeds[by_length].copy()
    for _ in range(int(lengths[0]) if len(lengths) else 0):
        alive = int(np.searchsorted(-lengths, -_, side="left"))
        here = at[:alive]
        acc[:alive] = result[here] = ufunc(acc[:alive], numbers[here])
        at[:alive] += 1
    return result


def _seeds(
    states: list[Any], type: TypeInformation, column: int, numbers: npt.NDArray[Any], groups: Groups, kind: str
) -> npt.NDArray[Any] | None:
    """What each key's accumulation begins with: its state, else the operation's neutral element."""
    # -0.0 is what leaves every float as it is, 0.0 included.
    neutral = np.full(len(states), -0.0).astype(numbers.dtype) if kind == "sum" else numbers[groups.starts[:-1]]
    known = [i for i, s in enumerate(states) if s is not None]
    if known:
        stored = type.to_columns([states[i] for i in known])[column]
        if stored.null_count:
            return None
        neutral = neutral.copy()
        neutral[known] = stored.to_numpy(zero_copy_only=False)
    return neutral


def _may_differ(
    numbers: npt.NDArray[Any], seeds: npt.NDArray[Any], groups: Groups, kind: str
) -> bool:
    """Whether numpy might give something else than Python does: sums beyond 64 bits, NaN and -0.0 in comparisons."""
    if numbers.dtype != np.int64:
        return kind != "sum" and any(bool((np.isnan(x) | ((x == 0) & np.signbit(x))).any()) for x in (numbers, seeds))
    if kind != "sum":
        return False
    most = int(np.diff(groups.starts).max())
    largest = max(abs(int(numbers.max())), abs(int(numbers.min())))
    return most * largest + max(abs(int(seeds.max())), abs(int(seeds.min()))) >= 2**63


def _with_first(
    table: pa.RecordBatch,
    groups: Groups,
    states: list[Any],
    type: TypeInformation,
    column: int,
    running: npt.NDArray[Any],
) -> pa.RecordBatch:
    """The output columns: those of each key's first element ever, with the aggregated one replaced."""
    counts = np.diff(groups.starts)
    first = table.take(pa.array(groups.order[groups.starts[:-1]]))
    rows = np.arange(len(states))
    known = [i for i, s in enumerate(states) if s is not None]
    if known and table.num_columns > 1:
        stored = pa.RecordBatch.from_arrays(type.to_columns([states[i] for i in known]), schema=table.schema)
        rows[known] = len(states) + np.arange(len(known))
        first = pa.concat_batches([first, stored])
    spread = pa.array(np.repeat(rows, counts))
    columns = [
        pa.array(running, table.schema.field(i).type) if i == column else first.column(i).take(spread)
        for i in range(table.num_columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _column_index(spec: RollingSpec) -> int | None:
    if spec.kind not in _UFUNCS:
        return None
    names = spec.value_type.column_names
    if isinstance(spec.field, str):
        return names.index(spec.field) if spec.field in names else None
    return spec.field % len(names) if -len(names) <= spec.field < len(names) else None


def rolling_function(spec: RollingSpec, uid: str) -> Callable[[Any, Any], Any]:
    """The reduction of two elements that the aggregate stands for."""
    names = tuple(f.name for f in spec.value_type.fields or ())
    get, put = field_access(spec.field, names)

    def of(value: Any) -> Any:
        try:
            return get(value)
        except (AttributeError, LookupError, TypeError):
            raise GraphError(
                f"operator {uid!r}: {spec.kind}({spec.field!r}) of {value!r}, which has no such field; name one that it "
                "has, or use 0 for the element itself"
            ) from None

    match spec.kind:
        case "sum":
            return lambda a, b: put(a, of(a) + of(b))
        case "min":
            return lambda a, b: put(a, min(of(a), of(b)))
        case "max":
            return lambda a, b: put(a, max(of(a), of(b)))
        case "min_by":
            return lambda a, b: b if of(b) < of(a) else a
        case "max_by":
            return lambda a, b: b if of(b) > of(a) else a


def field_access(
    field: int | str, names: tuple[str, ...]
) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """How to read a field of an element, and how to get the element with another value there.

    ``names``: those of the type's fields; of elements without a type, each tells its own. An element without fields is
    itself the field 0.
    """

    def fields_of(value: Any) -> tuple[str, ...]:
        if names:
            return names
        if dataclasses.is_dataclass(value):
            return tuple(f.name for f in dataclasses.fields(value))
        return tuple(getattr(value, "__struct_fields__", getattr(value, "_fields", ())))

    def get(value: Any) -> Any:
        if isinstance(value, dict) or (isinstance(field, int) and hasattr(value, "__getitem__")):
            return value[field]
        if isinstance(field, str):
            return getattr(value, field)
        known = fields_of(value)
        return getattr(value, known[field]) if known or field else value

    def put(value: Any, new: Any) -> Any:
        if isinstance(value, dict):
            return {**value, field: new}
        known = fields_of(value)
        if isinstance(value, tuple) and not hasattr(value, "_replace"):
            index = known.index(field) if isinstance(field, str) else field % len(value)
            return (*value[:index], new, *value[index + 1 :])
        if isinstance(value, Row):
            changed = Row.of(value.field_names, list(value))
            changed[field] = new
            return changed
        if not known:
            return new
        name = field if isinstance(field, str) else known[field]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.replace(value, **{name: new})
        if hasattr(value, "__struct_fields__"):
            return msgspec.structs.replace(value, **{name: new})
        return value._replace(**{name: new})

    return get, put
