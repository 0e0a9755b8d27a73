"""Functions of ARRAY, MAP and ROW: constructors, access to parts, and conversions of the parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.functions.registry import Datum, Function, Types, broadcast, is_scalar
from forkpoint.relational.types import BOOLEAN, INTEGERS, SqlType, array_type, common_type, map_type, row_of
from forkpoint.runtime.columnar.codes import comparable

Convert = Callable[[pa.Array, int], pa.Array]


def with_parts(value: Datum, to: pa.DataType, convert: Convert) -> Datum:
    """A nested value with converted parts. ``convert``: receives the values of a part, and its position."""
    if pa.types.is_string(value.type):  # NULL without a type
        return pa.scalar(None, to) if is_scalar(value) else pa.nulls(len(value), to)
    if is_scalar(value):
        return with_parts(pa.array([value.as_py()], value.type), to, convert)[0]
    if pa.types.is_struct(to):
        parts = [convert(part, at) for at, part in enumerate(value.flatten())]
        return pa.StructArray.from_arrays(parts, fields=list(to), mask=value.is_null())
    offsets = _offsets(value)
    if pa.types.is_map(to):
        keys, items = convert(value.keys, 0), convert(value.items, 1)
        if not keys.null_count:
            return pa.MapArray.from_arrays(offsets, keys, items, to)
        entries = pa.StructArray.from_arrays([keys, items], ["key", "value"])  # TRY_CAST: a MAP of which a key has no value
        rows = [
            each and [tuple(entry.values()) for entry in each] for each in pa.ListArray.from_arrays(offsets, entries).to_pylist()
        ]
        return pa.array([None if each and None in dict(each) else each for each in rows], to)
    return pa.ListArray.from_arrays(offsets, convert(value.values, 0), to)


def part_type(of: pa.DataType, at: int) -> pa.DataType:
    if pa.types.is_map(of):
        return (of.key_type, of.item_type)[at]
    return of.field(at).type


def _offsets(value: pa.Array) -> pa.Array:
    """The offsets of lists or maps; NULL where the list is NULL, as Arrow's constructors take them."""
    missing = np.append(value.is_null().to_numpy(zero_copy_only=False), False)
    return pa.array(value.offsets.to_numpy(), pa.int32(), mask=missing)


def by_columns(kernel: Callable[..., pa.Array]) -> Callable[..., Datum]:
    """A kernel of columns for columns and single values."""

    @wraps(kernel)
    def computed(*values: Datum) -> Datum:
        size = max((len(value) for value in values if isinstance(value, pa.Array)), default=1)
        found = kernel(*(broadcast(value, size) for value in values))
        return found[0] if is_scalar(*values) else found

    return computed


# -- constructors ------------------------------------------------------------------------------------------------------


def _array_type(types: Types) -> SqlType | str:
    found = common_type(list(types))
    if found is None or found.name == "NULL":
        return f"needs values of one type, not {' and '.join(of.label for of in types)}; CAST them"
    return array_type(found).with_null(False)


def _element_type(types: Types) -> SqlType | None:
    return common_type(list(types))


@by_columns
def _array(*columns: pa.Array) -> pa.Array:
    size, count = len(columns[0]), len(columns)
    rows = np.arange(count * size).reshape(count, size).T.ravel()
    offsets = np.arange(size + 1, dtype=np.int32) * count
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(columns).take(pa.array(rows)))


def map_parts(types: Types) -> tuple[SqlType | None, SqlType | None]:
    return common_type(list(types[::2])), common_type(list(types[1::2]))


def _map_type(types: Types) -> SqlType | str:
    key, value = map_parts(types)
    if len(types) % 2 or key is None or value is None or "NULL" in (key.name, value.name):
        return "takes keys of one type, each followed by its value, of one type; CAST them"
    if key.is_nested:
        return f"has numbers, texts and times as keys, not {key.label}"
    return map_type(key, value).with_null(False)


@by_columns
def _map(*columns: pa.Array) -> pa.Array:
    """The last of equal keys counts."""
    keys, values = (_array(*part).to_pylist() for part in (columns[::2], columns[1::2]))
    if any(None in each for each in keys):
        raise ValueError("a key is NULL")
    of = pa.map_(columns[0].type, columns[1].type)
    return pa.array([list(dict(zip(*pair, strict=True)).items()) for pair in zip(keys, values, strict=True)], of)


def _row_type(types: Types) -> SqlType | str:
    if any(of.name == "NULL" for of in types):
        return "takes no NULL without a type; CAST it"
    return row_of([f"EXPR${at}" for at in range(len(types))], types).with_null(False)


@by_columns
def _row(*columns: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays(columns, [f"EXPR${at}" for at in range(len(columns))])


# -- parts -------------------------------------------------------------------------------------------------------------


def _item_type(types: Types) -> SqlType | str:
    of, index = types
    if of.name == "ARRAY" and index.name in (*INTEGERS, "NULL"):
        return of.element.with_null()
    if of.name == "MAP" and common_type([index, of.fields[0].type]) is not None:
        return of.element.with_null()
    return f"takes an ARRAY and an integer, or a MAP and a key, not {of.label} and {index.label}"


@by_columns
def _item(value: pa.Array, index: pa.Array) -> pa.Array:
    """NULL for what is not there. Arrays begin with 1."""
    if pa.types.is_map(value.type):
        pairs = zip(value.to_pylist(), index.to_pylist(), strict=True)
        found = [None if entries is None else dict(entries).get(key) for entries, key in pairs]
        return pa.array(found, value.type.item_type)
    at = index.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = value.offsets.to_numpy().astype(np.int64)
    inside = (at >= 1) & (at <= np.diff(offsets)) & value.is_valid().to_numpy(zero_copy_only=False)
    return value.values.take(pa.array(np.where(inside, offsets[:-1] + at - 1, 0), mask=~inside))


@by_columns
def _field(value: pa.Array, name: pa.Array) -> pa.Array:
    return value.flatten()[value.type.get_field_index(name[0].as_py())] if len(value) else pa.array([], value.type.field(0).type)


def _cardinality_type(types: Types) -> SqlType | str:
    if types[0].name not in ("ARRAY", "MAP"):
        return f"takes an ARRAY or a MAP, not {types[0].label}"
    return SqlType("INT", types[0].nullable)


@by_columns
def _cardinality(value: pa.Array) -> pa.Array:
    return pa.array(np.diff(value.offsets.to_numpy()), pa.int32(), mask=value.is_null().to_numpy(zero_copy_only=False))


def _only_type(types: Types) -> SqlType | str:
    return types[0].element.with_null() if types[0].name == "ARRAY" else f"takes an ARRAY, not {types[0].label}"


@by_columns
def _only(value: pa.Array) -> pa.Array:
    """ELEMENT: the only element of an array."""
    if pc.max(_cardinality(value)).as_py() not in (None, 0, 1):
        raise ValueError("an array has several elements")
    return _item(value, pa.repeat(pa.scalar(1), len(value)))


def _contains_type(types: Types) -> SqlType | str:
    if types[0].name != "ARRAY" or common_type([types[0].element, types[1]]) is None:
        return f"takes an ARRAY and a value of its elements' type, not {types[0].label} and {types[1].label}"
    return BOOLEAN.with_null(types[0].nullable)


@by_columns
def _contains(value: pa.Array, needle: pa.Array) -> pa.Array:
    """NULL is found, too."""
    found = [
        None if elements is None else comparable(each) in map(comparable, elements)
        for elements, each in zip(value.to_pylist(), needle.to_pylist(), strict=True)
    ]
    return pa.array(found, pa.bool_())


NESTED: dict[str, Function] = {
    "ARRAY": Function((1, None), _array_type, _array, _element_type),
    "MAP": Function((2, None), _map_type, _map),
    "ROW": Function((1, None), _row_type, _row),
    "FIELD": Function((2, 2), lambda types: "is written as row.field", _field),
    "ITEM": Function((2, 2), _item_type, _item),
    "CARDINALITY": Function((1, 1), _cardinality_type, _cardinality),
    "ELEMENT": Function((1, 1), _only_type, _only),
    "ARRAY_CONTAINS": Function((2, 2), _contains_type, _contains),
}
