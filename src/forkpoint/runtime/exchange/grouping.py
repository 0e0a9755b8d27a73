"""Routing of batches to subtasks, and grouping by key, vectorized if the key is a column."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.errors import ForkpointError, GraphError, TypeNotSupported, UserFunctionError
from forkpoint.graph.transformations import Custom, KeyBy, Partitioning, Rebalance
from forkpoint.runtime.columnar.codes import codes_of, distinct_codes
from forkpoint.runtime.columnar.msgpack import encode_array, writable
from forkpoint.runtime.exchange.batch import Batch, Longs, stable_order
from forkpoint.runtime.expressions.keys import computed_column, computed_values
from forkpoint.runtime.operators.base import NOT_USERS, check_all_done, results_for, shorten, user_error
from forkpoint.state import hash_column, hash_encoded, hash_keys, key_group, subtask_of
from forkpoint.types import TypeInformation
from forkpoint.types.keys import canonical_column, equal_as_encoded
from forkpoint.types.kinds.records import ARRAY_FLAVORS, RecordType

_SKEW_ROWS, _SKEW_SAMPLE = 10_000, 200
_HOT = 0.1


@dataclass(frozen=True)
class Groups:
    """Elements grouped by key: ``keys[i]`` has the elements at ``order[starts[i]:starts[i + 1]]``, in the batch's order."""

    keys: list[Any]
    order: Longs
    starts: Longs


def key_column(batch: Batch, key: KeyBy) -> pa.Array | None:
    """The key as a column, if elements are columns and the key is a column, an expression, or a constant; else None."""
    if batch.table is None or not key.single:
        return None
    assert key.key_type is not None
    if key.columns is None:
        computed = computed_column(batch, key)
        return None if computed is None else canonical_column(computed, key.key_type)
    if pa.types.is_nested(key.key_type.arrow_type):
        return None
    if not key.columns:
        return pa.repeat(pa.scalar(key.selector(None), key.key_type.arrow_type), batch.size)
    column = batch.table.column(key.columns[0])
    if column.null_count and not key.key_type.nullable:
        raise GraphError(f"key_by({key.columns[0]!r}): the key of an element is null; filter such elements out first")
    return canonical_column(column, key.key_type)


def _record_column(batch: Batch, key: KeyBy) -> pa.Array | None:
    """A key of several fields as one column; None if its columns do not have its types, or cannot be encoded as columns."""
    of = key.key_type
    if batch.table is None or key.columns is None or key.single or not (isinstance(of, RecordType) and writable(of)):
        return None
    columns = [batch.table.column(name) for name in key.columns]
    if of.flavor not in ARRAY_FLAVORS or not all(_holds(c, child) for c, child in zip(columns, of.children, strict=True)):
        return None
    parts = [canonical_column(column, child) for column, child in zip(columns, of.children, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=list(of.arrow_type))


def _holds(column: pa.Array, of: TypeInformation) -> bool:
    return bool(column.type == of.arrow_type and (of.nullable or not column.null_count))


def python_keys(batch: Batch, key: KeyBy) -> list[Any]:
    """The key of each element as a Python object, independent of the element."""
    if batch.keys is not None:
        return batch.keys
    if batch.table is not None and key.columns is not None and not batch.has_values:
        types = {f.name: f.type for f in batch.type.fields or ()} if batch.type is not None else {}
        found = [types[name] for name in key.columns if name in types]
        if len(found) == len(key.columns):
            of, is_tuple = key.key_type, isinstance(key.key_type, RecordType) and key.key_type.flavor == "tuple"
            plain = [of] if key.single else of.children if is_tuple else ()
            exact = list(plain) == found
            pairs = zip(plain if exact else found, key.columns, strict=True)
            columns = [of.from_arrow(batch.table.column(name)) for of, name in pairs]
            keys = columns[0] if key.single else list(zip(*columns, strict=True))
            return keys if exact else key.key_type.accept_all(keys)
    computed = computed_values(batch, key)
    if computed is not None:
        return computed
    keys = list(map(key.selector, batch.values))
    check_all_done(len(keys), batch)
    return key.key_type.accept_all(keys)


def key_groups(batch: Batch, key: KeyBy, max_parallelism: int, uid: str) -> npt.NDArray[Any]:
    """The key group of each element for operator ``uid``. The batch keeps computed keys."""
    assert key.key_type is not None
    column = key_column(batch, key)
    if column is not None:
        return np.asarray(key_group(hash_column(column, key.key_type), max_parallelism))
    record = _record_column(batch, key)
    if record is not None:
        firsts, which = distinct_codes(codes_of([record]))
        encoded = encode_array(record.take(pa.array(firsts)), key.key_type).to_numpy(zero_copy_only=False).tolist()
        return np.asarray(key_group(hash_encoded(encoded), max_parallelism))[which]
    try:
        batch.keys = python_keys(batch, key)
        return np.asarray(key_group(hash_keys(batch.keys, key.key_type), max_parallelism))
    except NOT_USERS:
        raise
    except BaseException as error:
        raise _key_error(batch, key, uid, error) from error


def _key_error(batch: Batch, key: KeyBy, uid: str, error: BaseException) -> ForkpointError:
    """The error for the first element without a valid key."""
    assert key.key_type is not None
    for value in batch.values:
        try:
            found = key.selector(value)
        except NOT_USERS:
            raise
        except BaseException as raised:
            return user_error(uid, raised, value)
        try:
            key.key_type.accept(found)
        except Exception as unfit:
            return TypeNotSupported(
                f"operator {uid!r}: key {shorten(found)} of element {shorten(value)} is not valid for key type {key.key_type}: "
                f"{unfit}. Filter such elements out first, or pass key_by() another key_type"
            )
    return user_error(uid, error, batch.values)


def targets_of(
    batch: Batch, partitioning: Partitioning, parallelism: int, max_parallelism: int, uid: str
) -> npt.NDArray[Any] | None:
    """The target subtask of operator ``uid`` for each element; None if it does not depend on the element."""
    match partitioning:
        case KeyBy() as key:
            return subtasks(key_groups(batch, key, max_parallelism, uid), parallelism, max_parallelism)
        case Rebalance(by="element"):
            return batch.sequence % parallelism
        case Custom() as custom:
            return _chosen(batch, custom, parallelism, uid)
    return None


def _chosen(batch: Batch, custom: Custom, parallelism: int, uid: str) -> npt.NDArray[Any]:
    keys = map(custom.selector, batch.values)
    chosen = results_for(batch, uid, map(custom.partitioner, keys, repeat(parallelism)))
    for value, target in zip(batch.values, chosen, strict=True):
        if not 0 <= target < parallelism:
            raise UserFunctionError(
                f"operator {uid!r}: the partitioner of its input returned {target} for element {shorten(value)}; there are "
                f"{parallelism} subtasks, numbered from 0"
            )
    return np.array(chosen, dtype=np.int64)


def route(batch: Batch, targets: npt.NDArray[Any], parallelism: int) -> list[tuple[int, Batch]]:
    """Split a batch by target subtask, keeping the order within a part."""
    if not batch.size:
        return []
    if parallelism == 1:
        return [(0, batch)]
    small = targets.astype(np.uint8 if parallelism <= 256 else np.uint16)  # numpy sorts these by radix
    order = np.argsort(small, kind="stable")
    ends = np.cumsum(np.bincount(small, minlength=parallelism))
    by_target = batch.take(order)
    start, parts = 0, []
    for target, end in enumerate(ends.tolist()):
        if end > start:
            parts.append((target, by_target.slice(start, end)))
        start = end
    return parts


def subtasks(groups: npt.NDArray[Any], parallelism: int, max_parallelism: int) -> npt.NDArray[Any]:
    return np.asarray(subtask_of(groups, parallelism, max_parallelism))


def hottest_key(batch: Batch, key: KeyBy) -> tuple[str, float] | None:
    """The most frequent key of a large batch as text, and its approximate share of the elements, from a sample; None if no key is
    frequent. Calls no function of the user's: a key that is not in columns was computed before the exchange."""
    if batch.size < _SKEW_ROWS:
        return None
    sample = batch.take(np.linspace(0, batch.size - 1, _SKEW_SAMPLE, dtype=np.int64))
    if sample.keys is None and key_column(sample, key) is None:
        return None
    groups = group_by_key(sample, key)
    sizes = np.diff(groups.starts)
    most = int(sizes.argmax())
    share = float(sizes[most]) / _SKEW_SAMPLE
    return (shorten(groups.keys[most], 60), share) if share >= _HOT else None


def group_by_key(batch: Batch, key: KeyBy) -> Groups:
    """Group an ordered batch; each key's elements stay in order."""
    column = key_column(batch, key)
    if column is None or column.null_count:  # numbers have no null
        assert key.key_type is not None
        return _by_python_key(python_keys(batch, key), key.key_type)
    if pa.types.is_integer(column.type):
        numbers = column.to_numpy(zero_copy_only=False)
        order, ordered = stable_order(numbers)
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if len(ordered) else np.empty(0, int)
        return Groups(ordered[starts].tolist(), order, np.append(starts, len(ordered)))
    encoded = column.dictionary_encode()
    assert key.key_type is not None
    return _by_code(encoded.indices.to_numpy(), key.key_type.from_arrow(encoded.dictionary))


def _by_python_key(keys: list[Any], type: TypeInformation) -> Groups:
    """Keys are equal if their encodings are equal, as for columns; Python compares the keys if that is equivalent."""
    by_value = equal_as_encoded(keys, type)
    index: dict[Any, int] = {}
    find, compared = index.setdefault, keys if by_value else map(type.encode, keys)
    codes = np.fromiter((find(key, len(index)) for key in compared), np.int64, len(keys))
    return _by_code(codes, list(index) if by_value else list(map(type.decode, index)))


def _by_code(codes: npt.NDArray[Any], keys: list[Any]) -> Groups:
    order, ordered = stable_order(codes)
    starts = np.searchsorted(ordered, np.arange(len(keys)))
    return Groups(keys, order, np.append(starts, len(codes)))
