"""Expressions as conditions of patterns: computed over the columns of a stream's elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.errors import ConfigError
from forkpoint.relational.evaluation import evaluate_all, is_true
from forkpoint.relational.expressions import Expression, Item
from forkpoint.relational.types import Field
from forkpoint.table.schema import Schema, reading_of
from forkpoint.table.streams import columns_of
from forkpoint.types import TypeInformation

_CONDITION = "$condition"


@dataclass(frozen=True)
class BoundCondition:
    """``items``: what the expression reads, as columns in SQL's types."""

    of: Expression
    items: tuple[Item, ...]

    def holds(self, elements: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        columns = pa.RecordBatch.from_arrays(evaluate_all(self.items, elements), names=[item.name for item in self.items])
        return is_true(self.of, columns)

    def __str__(self) -> str:
        return str(self.of)


def bound_condition(text: str, of: TypeInformation | None) -> BoundCondition:
    """A condition in SQL over the fields of elements of this type. Raises ConfigError."""
    items = columns_of(f"the condition {text}", of)
    fields = tuple(Field(item.name, item.of.type) for item in items)
    schema = Schema.new_builder().column_by_expression(_CONDITION, text).build()
    condition = reading_of(schema, fields).columns[-1].of
    if condition.type.name != "BOOLEAN":
        raise ConfigError(f"the condition {text} is {condition.type}, not true or false; compare it with something")
    return BoundCondition(condition, tuple(items))
