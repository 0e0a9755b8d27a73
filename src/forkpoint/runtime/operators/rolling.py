"""Aggregates of one field as reductions of two elements: sum, min, max, min_by, max_by.

As in Flink, outputs have the aggregated field replaced and all other fields of the key's first element. min_by and max_by emit
the extreme element, the earliest of equals. For columns, see runtime/columnar.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from forkpoint.errors import GraphError
from forkpoint.functions.fields import field_access
from forkpoint.types import TypeInformation

RollingKind = Literal["sum", "min", "max", "min_by", "max_by"]


@dataclass(frozen=True)
class Rolling:
    """An aggregate of one field. ``value_type``: the elements' type."""

    aggregate: RollingKind
    field: int | str
    value_type: TypeInformation


def rolling_function(rolling: Rolling, uid: str) -> Callable[[Any, Any], Any]:
    """The aggregate as a reduction of two elements."""
    names = tuple(f.name for f in rolling.value_type.fields or ())
    get, put = field_access(rolling.field, names)

    def of(value: Any) -> Any:
        try:
            return get(value)
        except (AttributeError, LookupError, TypeError):
            raise GraphError(
                f"operator {uid!r}: {rolling.aggregate}({rolling.field!r}) of {value!r}, which has no such field; name an "
                "existing field, or use 0 for the element itself"
            ) from None

    match rolling.aggregate:
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
