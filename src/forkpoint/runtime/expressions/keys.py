"""Keys that are expressions, computed over columns."""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any

import pyarrow as pa

from forkpoint.graph.job import InEdge
from forkpoint.graph.transformations import KeyBy
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.expressions.functions import OverColumns, check_output, kept, mapped, text_of
from forkpoint.runtime.expressions.screening import NotAnExpression
from forkpoint.runtime.expressions.tracing import Traced, traced
from forkpoint.types import TypeInformation, Types

_NATURAL: dict[str, TypeInformation] = {
    "int": Types.LONG(),
    "float": Types.DOUBLE(),
    "bool": Types.BOOLEAN(),
    "str": Types.STRING(),
}


def computed_column(batch: Batch, key: KeyBy) -> pa.Array | None:
    """The computed key of each element, not in canonical form; None if it is no column, or if Python has to compute it."""
    found = _computed(batch, key)
    if found is None or key.key_type.kind == "any" or found.output.fields is not None:
        return None
    columns = found.columns(batch, None)
    return None if columns is None else columns[0]


def computed_values(batch: Batch, key: KeyBy) -> list[Any] | None:
    """The same as Python objects, also if they are tuples, or of no declared type."""
    found = _computed(batch, key)
    columns = None if found is None else found.columns(batch, None)
    return None if found is None or columns is None else key.key_type.accept_all(found.output.from_columns(columns))


def is_computed(key: KeyBy, elements: TypeInformation | None) -> bool:
    """Whether a key can be a computed column."""
    return key.key_type.kind != "any" and _over_columns(key, elements) is not None


def how_keyed(edge: InEdge) -> str:
    """How the key of an input is computed, for people; "" without a function, or of one that only picks fields."""
    key = edge.partitioning
    if not isinstance(key, KeyBy) or key.columns is not None or not isinstance(key.selector, FunctionType | MethodType):
        return ""
    found = text_of(key.selector, lambda: _traced(key, edge.type)[0])
    return f"key {found}" if found else ""


def _computed(batch: Batch, key: KeyBy) -> OverColumns | None:
    return None if batch.table is None or key.columns is not None else _over_columns(key, batch.type)


def _over_columns(key: KeyBy, elements: TypeInformation | None) -> OverColumns | None:
    if not key.over_columns or key.columns is not None or elements is None:
        return None
    return kept((key, elements), lambda: _found(key, elements))


def _found(key: KeyBy, elements: TypeInformation) -> OverColumns | None:
    try:
        found, output = _traced(key, elements)
    except NotAnExpression:
        return None
    return OverColumns("key_by", key.selector, found, elements, output)


def _traced(key: KeyBy, elements: TypeInformation | None) -> tuple[Traced, TypeInformation]:
    """The key's expressions, and their type: that of the key, or by their values if it is not declared."""
    if key.key_type.kind != "any":
        return mapped(key.selector, elements, key.key_type), key.key_type
    found = traced(key.selector, elements)
    assert elements is not None
    types = [_NATURAL.get(node.kind) for node in found.nodes]
    if None in types or found.made not in (None, tuple):
        raise NotAnExpression("its key type is not declared")
    output = types[0] if found.made is None else Types.TUPLE(types)
    assert output is not None
    check_output(found, elements, output)
    return found, output
