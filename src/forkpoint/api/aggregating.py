"""``agg`` and ``process_batch``: from what a program says to the operators' specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forkpoint.errors import GraphError
from forkpoint.functions import (
    Aggregates,
    Aggregator,
    KeyedBatchFunction,
    RowShape,
    WindowBound,
    declared_states,
    row_shape,
)
from forkpoint.graph.transformations import KeyBy
from forkpoint.types import TypeInformation, Types

if TYPE_CHECKING:
    from forkpoint.runtime.columnar.running import RunningAggregatesSpec

Named = Mapping[str, Aggregator[Any] | WindowBound]


def aggregates_of(
    key: KeyBy, named: Named, elements: TypeInformation | None, *, windows: bool, with_key: bool = True
) -> tuple[Aggregates, RowShape]:
    """The aggregates of ``agg``, and its rows: the key's columns come first, named as the fields that make it up."""
    fields = _key_fields(key, elements) if with_key else ()
    whole = key.single or [name for name, _ in fields] == ["key"]  # the key as it is in one column
    return row_shape(fields, single=whole, named=named, elements=elements, windows=windows)


def _key_fields(key: KeyBy, elements: TypeInformation | None) -> tuple[tuple[str, TypeInformation], ...]:
    type = key.key_type or Types.ANY()
    if not key.columns or elements is None or elements.fields is None:
        return (("key", type),)
    if key.single:
        return ((key.columns[0], type),)
    if type.fields is None or len(type.fields) != len(key.columns):
        return (("key", type),)
    return tuple((name, field.type) for name, field in zip(key.columns, type.fields, strict=True))


def running_aggregates(key: KeyBy, named: Named, elements: TypeInformation | None) -> RunningAggregatesSpec:
    from forkpoint.runtime.columnar.running import RunningAggregatesSpec

    aggregates, shape = aggregates_of(key, named, elements, windows=False)
    return RunningAggregatesSpec(aggregates, shape, aggregates.accumulator_type(elements))


def check_batch_function(func: Any, output_type: TypeInformation | None, elements: TypeInformation | None) -> None:
    """GraphError where ``process_batch`` could not run."""
    name = type(func).__name__
    if not isinstance(func, KeyedBatchFunction):
        raise GraphError(f"process_batch() takes a KeyedBatchFunction, not {func!r}")
    if output_type is None:
        raise GraphError(
            f"process_batch({name}): columns need a type; give output_type, say a NamedTuple of the columns"
        )
    if elements is None:
        raise GraphError(
            f"process_batch({name}): the elements have no type, so they are no columns; give the source a type"
        )
    for descriptor in declared_states(func).values():
        if descriptor.ttl is not None:
            raise GraphError(
                f"process_batch({name}): state {descriptor.name!r} has a time to live, which states of whole columns don't "
                "have; leave it out, or use a KeyedProcessFunction"
            )
