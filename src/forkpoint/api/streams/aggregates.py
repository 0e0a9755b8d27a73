"""The aggregates and rows of ``agg``, and the argument checks of ``process_batch``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forkpoint.api.streams.base import check_type
from forkpoint.errors import GraphError
from forkpoint.functions import Aggregates, Aggregator, KeyedBatchFunction, RowShape, WindowBound, declared_states, row_shape
from forkpoint.graph.transformations import KeyBy
from forkpoint.types import TypeInformation

Named = Mapping[str, Aggregator[Any] | WindowBound]


def aggregates_of(
    key: KeyBy, named: Named, elements: TypeInformation | None, *, windows: bool, with_key: bool = True
) -> tuple[Aggregates, RowShape]:
    """The aggregates and the row shape of ``agg``: the key's columns come first, named after its fields."""
    fields = _key_fields(key, elements) if with_key else ()
    single = key.single or [name for name, _ in fields] == ["key"]  # one column holds the entire key
    return row_shape(fields, single=single, named=named, elements=elements, windows=windows)


def _key_fields(key: KeyBy, elements: TypeInformation | None) -> tuple[tuple[str, TypeInformation], ...]:
    type = key.key_type
    if key.columns and elements is not None and elements.fields is not None:
        if key.single:
            return ((key.columns[0], type),)
        if type.fields is not None and len(type.fields) == len(key.columns):
            return tuple((name, field.type) for name, field in zip(key.columns, type.fields, strict=True))
    return (("key", type),)


def check_batch_function(func: Any, output_type: TypeInformation | None, elements: TypeInformation | None) -> None:
    """Raise GraphError for arguments with which ``process_batch`` cannot run."""
    name = type(func).__name__
    check_type(func, KeyedBatchFunction, "process_batch")
    if output_type is None:
        raise GraphError(f"process_batch({name}) needs an output_type that names its columns, such as a NamedTuple")
    if elements is None:
        raise GraphError(f"process_batch({name}): the elements are untyped, so they have no columns; give the source a type")
    for descriptor in declared_states(func).values():
        if descriptor.ttl is not None:
            raise GraphError(
                f"process_batch({name}): state {descriptor.name!r} has a time to live, which column-wise state does not "
                "support; remove it, or use a KeyedProcessFunction"
            )
