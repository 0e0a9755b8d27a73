"""Parses records of text to columns with Arrow's parsers of JSON and CSV, if their result equals that of `RecordConverter`.

The converter defines the result. Arrow's parsers accept more than it does, and read some values differently, so their result is
checked: times in other notations, numbers that are not finite, the sign of a zero, nulls that mean a default.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.types import Field, TypeInformation
from forkpoint.types.kinds.literals import LiteralType

_PLAIN = {"boolean", "byte", "short", "int", "long", "float", "double", "decimal", "string", "char"}
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MOMENT = _DAY + r"[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
# The notations that Arrow casts to the same time as msgspec.
_TEMPORAL = {"date": f"^{_DAY}$", "timestamp": f"^{_MOMENT}$", "instant": f"^{_MOMENT}(Z|[+-][0-9]{{2}}:[0-9]{{2}})$"}
_YEAR_ONE = -62_135_596_800_000_000  # µs: Arrow has a year 0, Python does not


Named = Callable[[Field], str]


def text_schema(type: TypeInformation | None, named: Named = attrgetter("name"), *, nested: bool = False) -> pa.Schema | None:
    """The schema with which Arrow's parsers read a record type; None if they cannot read all columns. ``nested``: a column may
    have records."""
    fields = []
    for field in () if type is None else type.fields or ():
        inner = _inner(field.type)
        of: pa.DataType | None = _read_as(inner) if inner.kind in _PLAIN | _TEMPORAL.keys() else None
        if nested and inner.fields:
            within = text_schema(inner, named)
            of = None if within is None else pa.struct(within)
        if of is None:
            return None
        fields.append((named(field), of))
    return pa.schema(fields) if fields else None


def typed_columns(table: pa.Table, type: TypeInformation, named: Named = attrgetter("name")) -> pa.RecordBatch | None:
    """Convert the columns that Arrow read by `text_schema` to the type's; None if the converter's result could differ."""
    columns = []
    for field in type.fields or ():
        column = _typed(table.column(named(field)).combine_chunks(), field, named)
        if column is None:
            return None
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=type.arrow_schema)


def allows(type: TypeInformation, column: pa.Array) -> bool:
    """Whether a Literal allows all values of a column; True for any other type."""
    of = _inner(type)
    if not isinstance(of, LiteralType):
        return True
    return pc.all(pc.is_in(column.drop_null(), pa.array(of.allowed, of.arrow_type))).as_py() is not False


def kinds(type: TypeInformation) -> set[str]:
    """The kinds of a type and of all nested types."""
    fields = [f.type for f in type.fields or ()]
    return {type.kind}.union(*map(kinds, [*type.children, *fields]))


def is_utf8(data: bytes) -> bool:
    """Whether bytes are UTF-8."""
    if data.isascii():
        return True
    try:
        pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _inner(type: TypeInformation) -> TypeInformation:
    return type.children[0] if type.kind == "optional" else type


def _read_as(type: TypeInformation) -> pa.DataType:
    if type.kind in _TEMPORAL:
        return pa.string()  # Arrow's JSON parser does not support time zones
    return pa.float64() if type.kind == "float" else type.arrow_type  # the converter rounds to 64 bits, then to 32


def _typed(column: pa.Array, field: Field, named: Named) -> pa.Array | None:
    kind = _inner(field.type).kind
    null_is_none = field.type.nullable and (not field.has_default or field.make_default() is None)
    if column.null_count and not null_is_none:  # the converter inserts a default, or refuses the record
        return None
    if not allows(field.type, column):
        return None
    if pa.types.is_struct(column.type):
        return _records(column, _inner(field.type), named)
    if kind in _TEMPORAL:
        return _times(column, field.type.arrow_type, _TEMPORAL[kind])
    if kind in ("float", "double"):
        column = column.cast(field.type.arrow_type)
        numbers = column.drop_null().to_numpy()
        if not np.isfinite(numbers).all() or np.signbit(numbers[numbers == 0]).any():
            return None
    return column


def _records(column: pa.StructArray, type: TypeInformation, named: Named) -> pa.Array | None:
    present = column.is_valid().to_numpy(zero_copy_only=False)
    rows = column.drop_null()
    found = typed_columns(pa.table(rows.flatten(), names=[each.name for each in rows.type]), type, named)
    if found is None:
        return None
    places = pa.array(np.cumsum(present) - 1, mask=~present)
    return pa.StructArray.from_arrays(found.columns, fields=list(type.arrow_type)).take(places)


def _times(texts: pa.Array, to: pa.DataType, notation: str) -> pa.Array | None:
    if pc.all(pc.match_substring_regex(texts, notation)).as_py() is False:
        return None
    try:
        times = texts.cast(to)
    except pa.ArrowInvalid:
        return None
    first = pc.min(times.cast(pa.timestamp("us")) if pa.types.is_date(to) else times).cast(pa.int64()).as_py()
    return None if first is not None and first < _YEAR_ONE else times
