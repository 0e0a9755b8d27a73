"""Aggregates that need all values of a group: ARRAY_AGG, COLLECT, JSON_ARRAYAGG, JSON_OBJECTAGG and PERCENTILE.

Their accumulators are ARRAYs (``kept``): of ARRAY_AGG of a ROW for each value, which may be NULL; of JSON_ARRAYAGG of values as
JSON; of JSON_OBJECTAGG of keys and values as JSON; of PERCENTILE of numbers and how often they count. A NULL is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.aggregation.kept import lengths, parts_of
from forkpoint.relational.functions.json_texts import enclosed, in_order, json_texts
from forkpoint.relational.types import DOUBLE, STRING, SqlType, array_type, map_type
from forkpoint.runtime.columnar.codes import codes_of

Longs = npt.NDArray[np.int64]


def _array(argument: SqlType | None) -> SqlType | str:
    return "takes a column, not *" if argument is None else array_type(argument.fields[0].type)


def _multiset(argument: SqlType | None) -> SqlType | str:
    if argument is None or argument.is_nested or argument.name == "NULL":
        return f"takes numbers, text, BYTES and times, not {'*' if argument is None else argument.name}"
    return map_type(argument, SqlType("INT")).with_null(False)


def _json(argument: SqlType | None) -> SqlType | str:
    return "takes a column, not *" if argument is None else STRING.with_null(False)


PERCENTILE = "PERCENTILE"
FUNCTIONS: Mapping[str, Callable[[SqlType | None], SqlType | str]] = {
    "ARRAY_AGG": _array,
    "COLLECT": _multiset,
    "JSON_ARRAYAGG": _json,
    "JSON_OBJECTAGG": _json,
    PERCENTILE: lambda argument: DOUBLE,
}
"""The type of each function's result for that of its elements."""


def is_collected(function: str) -> bool:
    """``PERCENTILE 0.5`` is a function: its fractions follow its name."""
    return function.partition(" ")[0] in FUNCTIONS


def result(function: str, of: SqlType, found: pa.Array, *, distinct: bool) -> pa.Array:
    """The results, of this type. ``found``: the elements of each group. Raises ValueError."""
    owners = np.repeat(np.arange(len(found)), lengths(found))
    elements = found.flatten()
    if function == "COLLECT":
        return _counted(of, elements, owners, len(found), distinct=distinct)
    if function.startswith(PERCENTILE):
        columns = [_percentile(float(each), elements, owners, len(found)) for each in function.split(" ")[1:]]
        return columns[0] if of.name == "DOUBLE" else _arrays_of(columns, of)
    if function == "JSON_OBJECTAGG":
        return _objects(elements, owners, len(found))
    if distinct:
        firsts = np.sort(np.unique(codes_of([pa.array(owners), *parts_of(elements)]), return_index=True)[1])
        elements, owners = elements.take(pa.array(firsts)), owners[firsts]
    if function == "JSON_ARRAYAGG":
        return enclosed("[", pc.binary_join(_lists(elements, owners, len(found)), ","), "]")
    some = pa.array(np.bincount(owners, minlength=len(found)) > 0)
    return pc.if_else(some, _lists(elements.flatten()[0], owners, len(found)).cast(of.arrow_type), pa.scalar(None, of.arrow_type))


def _offsets(owners: Longs, size: int) -> pa.Array:
    return pa.array(np.append(0, np.cumsum(np.bincount(owners, minlength=size))), pa.int32())


def _lists(elements: pa.Array, owners: Longs, size: int) -> pa.Array:
    return pa.ListArray.from_arrays(_offsets(owners, size), elements)


def _counted(of: SqlType, elements: pa.Array, owners: Longs, size: int, *, distinct: bool) -> pa.Array:
    """How often each group has each value, in the order in which they came first."""
    _, firsts, counts = np.unique(codes_of([pa.array(owners), elements]), return_index=True, return_counts=True)
    order = np.argsort(firsts)
    rows, numbers = firsts[order], np.ones(len(order)) if distinct else counts[order]
    keys = elements.take(pa.array(rows))
    return pa.MapArray.from_arrays(_offsets(owners[rows], size), keys, pa.array(numbers, pa.int32()), of.arrow_type)


def _objects(members: pa.Array, owners: Longs, size: int) -> pa.Array:
    keys, texts = members.flatten()
    if keys.null_count:
        raise ValueError("a key is NULL")
    order = in_order(keys, owners)
    keys, owners = keys.take(pa.array(order)), owners[order]
    again = (owners[1:] == owners[:-1]) & pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False) if len(keys) else owners
    if again.any():
        raise ValueError(f"a group has the key {keys[int(np.argmax(again))].as_py()!r} twice")
    parts = pc.binary_join_element_wise(json_texts(keys), texts.take(pa.array(order)), ":")
    return enclosed("{", pc.binary_join(_lists(parts, owners, size), ","), "}")


def _percentile(fraction: float, elements: pa.Array, owners: Longs, size: int) -> pa.Array:
    """The value at a fraction of the way from the least to the greatest, between two values by their distances; NULL without."""
    values, counts = (part.to_numpy(zero_copy_only=False) for part in elements.flatten())
    order = np.lexsort((values, owners))
    values, until = values[order], np.cumsum(counts[order])
    totals = np.bincount(owners, counts, size).astype(np.int64)
    at = fraction * np.maximum(totals - 1, 0)
    some = totals > 0
    low, high = (
        values[np.searchsorted(until, (np.cumsum(totals) - totals + place)[some], "right")]
        for place in (np.floor(at), np.ceil(at))
    )
    found = np.zeros(size)
    part = (at - np.floor(at))[some]
    found[some] = low * (1 - part) + high * part
    return pa.array(found, mask=~some)


def _arrays_of(columns: list[pa.Array], of: SqlType) -> pa.Array:
    size, count = len(columns[0]), len(columns)
    elements = pa.concat_arrays(columns).take(pa.array(np.arange(size * count).reshape(count, size).T.ravel()))
    lists = pa.ListArray.from_arrays(pa.array(np.arange(size + 1) * count, pa.int32()), elements).cast(of.arrow_type)
    return pc.if_else(columns[0].is_valid(), lists, pa.scalar(None, of.arrow_type))
