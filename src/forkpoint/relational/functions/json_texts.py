"""Values as JSON texts: JSON_STRING, JSON_QUOTE, and the constructors JSON_OBJECT and JSON_ARRAY.

As in Flink, objects have their keys in order, so that equal values have equal texts.
"""

from __future__ import annotations

import base64
import json

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.functions.casts import to_text
from forkpoint.relational.functions.decimals import decimal_to
from forkpoint.relational.functions.json_paths import checked
from forkpoint.relational.functions.nested import by_columns, with_parts
from forkpoint.relational.functions.registry import Function, Types, fixed, per_distinct
from forkpoint.relational.functions.text import joined
from forkpoint.relational.types import INTERVALS, STRING, SqlType

NULL = "null"
"""NULL in JSON."""


def json_texts(values: pa.Array) -> pa.Array:
    """Each value as JSON; NULL for NULL."""
    of = values.type
    if pa.types.is_list(of):
        parts = with_parts(values, pa.list_(pa.string()), lambda part, at: _part(part))
        return enclosed("[", pc.binary_join(parts, ","), "]")
    if pa.types.is_map(of):
        return _maps(values)
    if pa.types.is_struct(of):
        fields = sorted(zip(of.names, values.flatten(), strict=True), key=lambda field: field[0])
        return pc.if_else(values.is_valid(), _objects(*((pa.scalar(_quoted(name)), _part(part)) for name, part in fields)), None)
    return _scalars(values)


def _part(values: pa.Array) -> pa.Array:
    return json_texts(values).fill_null(NULL)


def _scalars(values: pa.Array) -> pa.Array:
    of = values.type
    if pa.types.is_string(of):
        return per_distinct(_quoted, pa.string(), values)
    if pa.types.is_boolean(of):
        return pc.if_else(values, "true", "false")
    if pa.types.is_binary(of):
        return per_distinct(lambda data: f'"{base64.b64encode(data).decode()}"', pa.string(), values)
    text = decimal_to(values, pa.string()) if pa.types.is_decimal(of) else to_text(values)
    if pa.types.is_floating(of):  # JSON has no NaN
        return pc.if_else(pc.is_finite(values), text, enclosed('"', text, '"'))
    if pa.types.is_timestamp(of):
        text = pc.replace_substring_regex(pc.replace_substring(text.cast(pa.string()), " ", "T"), "Z$", "")
        text = pc.replace_substring_regex(text, r"(\.\d*[1-9])0+$", r"\1")
        return enclosed('"', text, '"' if of.tz is None else 'Z"')
    return enclosed('"', text, '"') if pa.types.is_temporal(of) else text


def _maps(values: pa.Array) -> pa.Array:
    offsets = values.offsets.to_numpy()
    members = _members(json_texts(values.keys), _part(values.items))
    owners = np.repeat(np.arange(len(values)), np.diff(offsets))
    found = in_order(values.keys.slice(offsets[0], len(owners)), owners)
    lists = pa.ListArray.from_arrays(pa.array(offsets - offsets[0], pa.int32()), members.take(pa.array(found + offsets[0])))
    return pc.if_else(values.is_valid(), enclosed("{", pc.binary_join(lists, ","), "}"), None)


def in_order(keys: pa.Array, owners: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The rows in the order of their owners, then of their keys."""
    ranks = pc.rank(keys, tiebreaker="dense").to_numpy(zero_copy_only=False) if len(keys) else np.empty(0)
    return np.lexsort((ranks, owners))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _members(keys: pa.Array | pa.Scalar, texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(keys, texts, ":")


def enclosed(before: str, text: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, text, after, "")


def _objects(*members: tuple[pa.Array | pa.Scalar, pa.Array]) -> pa.Array:
    """Objects of members: keys in JSON and texts. A member whose text is NULL is left out."""
    return enclosed("{", joined([_members(*each) for each in members], ","), "}")


@by_columns
def _object(*parts: pa.Array) -> pa.Array:
    if not parts:
        return pa.array(["{}"])
    return _objects(*zip(map(json_texts, parts[::2]), parts[1::2], strict=True))


@by_columns
def _array(*texts: pa.Array) -> pa.Array:
    if not texts:
        return pa.array(["[]"])
    return enclosed("[", joined(texts, ","), "]")


def _why_not(of: SqlType) -> str | None:
    if of.name in INTERVALS:
        return f"takes no {of.name}"
    if of.name == "MAP" and of.fields[0].type.name != "STRING":
        return f"takes a MAP whose keys are texts, not {of.label}"
    return next((why for part in of.fields if (why := _why_not(part.type)) is not None), None)


def _string_type(types: Types) -> SqlType | str:
    return _why_not(types[0]) or STRING.with_null(types[0].nullable)


def _text_type(types: Types) -> SqlType | str:
    return STRING.with_null(False)


def _escaped(text: str) -> str:
    return json.dumps(text).replace("/", "\\/")


JSON_TEXTS: dict[str, Function] = {
    "JSON_STRING": Function((1, 1), _string_type, by_columns(json_texts)),
    "JSON_QUOTE": Function((1, 1), fixed(STRING, "STRING"), lambda of: per_distinct(_escaped, pa.string(), of)),
    "JSON": Function((1, 1), fixed(STRING, "STRING"), lambda of: per_distinct(checked, pa.string(), of)),
    "JSON_OBJECT": Function((0, None), _text_type, _object),
    "JSON_ARRAY": Function((0, None), _text_type, _array),
}
"""JSON_OBJECT takes keys and JSON texts in turn, JSON_ARRAY JSON texts; they leave out NULL."""
