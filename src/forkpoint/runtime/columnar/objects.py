"""Lossless conversion of Python objects to columns: an object read back from the columns is equal and of the same type."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from forkpoint.contract.sink import SinkBatch
from forkpoint.errors import TypeNotSupported
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.containers import OptionalType, SequenceType
from forkpoint.types.kinds.records import RecordType

_NUMBERS = ("byte", "short", "int", "long", "big_int", "big_dec", "double", "boolean")
_EXACT = frozenset((*_NUMBERS, "decimal", "string", "char", "bytes", "uuid", "date", "duration"))
_TIMES = frozenset(("time", "timestamp", "instant"))  # columns lose their fold

_class = type  # shadowed by parameters
_fold, _tzinfo = attrgetter("fold"), attrgetter("tzinfo")


def as_columns(batch: Batch) -> Batch:
    """The batch with columns in addition to its objects; unchanged if it has columns or the conversion would lose information.

    For example, an int in a float field is processed and stored as an int.
    """
    if batch.table is not None or batch.type is None or not batch.size:
        return batch
    values = batch.unseen_values
    try:
        columns = batch.type.to_columns(values) if _fits(values, batch.type) else None
    except TypeNotSupported:
        columns = None
    if columns is None:
        return batch
    return Batch(
        batch.size,
        batch.positions,
        batch.splits,
        batch.sequence,
        values=values,
        table=pa.RecordBatch.from_arrays(columns, schema=batch.type.arrow_schema),
        type=batch.type,
        timestamps=batch.timestamps,
        keys=batch.keys,
        ordered=batch.ordered,
    )


def columns_of(batch: SinkBatch[Any], type: TypeInformation | None) -> pa.RecordBatch:
    """The elements of a batch as columns of the type. Unlike `as_columns`, it converts what does not fit exactly."""
    if batch.table is not None:
        return batch.table
    assert type is not None
    return pa.RecordBatch.from_arrays(type.to_columns(batch.values), schema=type.arrow_schema)


def _fits(values: list[Any], type: TypeInformation) -> bool:
    """Whether columns hold the values losslessly."""
    if isinstance(type, OptionalType):
        return _fits([value for value in values if value is not None], type.of)
    if not {type.python_class}.issuperset(map(_class, values)):
        return False
    match type:
        case RecordType(flavor="namedtuple" | "tuple"):
            count = len(type.members)
            return {count}.issuperset(map(len, values)) and _parts_fit(values, type, map(itemgetter, range(count)))
        case RecordType(flavor="dataclass" | "struct"):
            return _parts_fit(values, type, map(attrgetter, type.names))
        case SequenceType(form="list" | "tuple_of"):
            return _fits(list(chain.from_iterable(values)), type.element)
    if type.kind in _TIMES:
        zone = UTC if type.kind == "instant" else None
        return {0}.issuperset(map(_fold, values)) and {zone}.issuperset(map(_tzinfo, values))
    return type.kind in _EXACT


def _parts_fit(values: list[Any], type: RecordType, getters: Iterable[Any]) -> bool:
    return all(_fits(list(map(get, values)), part) for get, part in zip(getters, type.children, strict=True))
