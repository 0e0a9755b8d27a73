"""The keys of operators: expressions that are the first columns of their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.graph.transformations import KeyBy
from forkpoint.relational.types import SqlType
from forkpoint.runtime.columnar.keys import GroupedRows, KeySet
from forkpoint.runtime.exchange.batch import Longs
from forkpoint.types import TypeInformation, Types
from forkpoint.types.information import Field
from forkpoint.types.keys import canonical_column
from forkpoint.types.kinds.records import RecordType


def key_by(columns: Sequence[str], names: Sequence[str], types: Sequence[SqlType], at: Sequence[int] = ()) -> KeyBy:
    """The key of a stream whose columns are the key's parts: the part itself, a row of several, or a constant.

    ``names``: of the parts, in state. ``at``: which columns; by default the first.
    """
    parts = [of.stream_type for of in types] or [Types.BYTE()]
    of = parts[0] if len(parts) == 1 else RecordType("row", "Row", tuple(map(Field, names, parts)))
    return KeyBy(_Fields(tuple(at or range(len(names)))), of, tuple(columns), len(names) < 2)


@dataclass(frozen=True)
class _Fields:
    """Selects the key of a row: some of its fields."""

    at: tuple[int, ...]

    def __call__(self, element: Any) -> Any:
        if len(self.at) == 1:
            return element[self.at[0]]
        return tuple(element[each] for each in self.at) if self.at else 0


def key_columns(table: pa.RecordBatch, count: int, of: TypeInformation) -> list[pa.Array]:
    """The first ``count`` columns, those of the key, in canonical form; without any, the constant. ``of``: the key's type."""
    if not count:
        return [pa.repeat(pa.scalar(0, of.arrow_type), table.num_rows)]
    parts = of.children if count > 1 else (of,)
    return [canonical_column(column, part) for column, part in zip(table.columns[:count], parts, strict=True)]


def grouped_together(parts: Sequence[list[pa.Array]], key: KeyBy, max_parallelism: int) -> tuple[KeySet, list[Longs]]:
    """The distinct keys of several tables, by the columns of their keys, and the index of the key of each row."""
    columns = [pa.concat_arrays(same) for same in zip(*parts, strict=True)]
    grouped = GroupedRows.of(columns, key, max_parallelism)
    owners = np.empty(len(grouped.order), np.int64)
    owners[grouped.order] = np.repeat(np.arange(len(grouped.keys.column)), np.diff(grouped.starts))
    return grouped.keys, np.split(owners, np.cumsum([len(columns[0]) for columns in parts])[:-1])


def parts_of_keys(keys: pa.Array, count: int) -> list[pa.Array]:
    """The ``count`` columns of keys that are one array."""
    return [] if not count else list(keys.flatten()) if count > 1 else [keys]
