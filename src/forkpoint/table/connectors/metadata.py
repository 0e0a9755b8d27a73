"""Columns about messages, beside those of the rows that are in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from forkpoint.contract.format import Deserialized
from forkpoint.relational.changes import WEIGHT, Longs, row_type
from forkpoint.sql.statements import MetadataColumn
from forkpoint.table.connectors.options import TableOptions
from forkpoint.types import Row, TypeInformation
from forkpoint.types.kinds.records import RecordType


@dataclass(frozen=True)
class Metadata:
    """``inner``: the type of rows without these columns; ``row``: with them."""

    inner: RecordType
    row: RecordType
    columns: tuple[MetadataColumn, ...]

    @classmethod
    def of(cls, options: TableOptions, inner: Any, types: Mapping[str, Sequence[str]]) -> Metadata:
        """``types``: of each that the connector has. Raises SqlError for others."""
        options.check_metadata(types)
        assert isinstance(inner, RecordType)
        row = row_type(options.table.read_schema, updating=WEIGHT in inner.names)
        return cls(inner, row, options.table.metadata)

    def added_to(
        self, found: Deserialized[Any], messages: int, about: Callable[[MetadataColumn, Longs], pa.Array]
    ) -> Deserialized[Row]:
        """The rows of so many messages with these columns. ``about``: a column, for the message of each row."""
        places = found.places(messages)
        columns = dict(zip(self.inner.names, columns_in(found, self.inner), strict=True))
        columns |= {column.name: about(column, places) for column in self.columns}
        return replace(found, elements=in_order(columns, self.row))


def columns_in(found: Deserialized[Any], type: TypeInformation[Any]) -> Sequence[pa.Array]:
    return found.elements.columns if isinstance(found.elements, pa.RecordBatch) else type.to_columns(found.elements)


def in_order(columns: Mapping[str, pa.Array], type: RecordType) -> pa.RecordBatch:
    """The columns of rows of a type."""
    return pa.RecordBatch.from_arrays([columns[name] for name in type.names], schema=type.arrow_schema)
