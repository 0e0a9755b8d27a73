"""The columns of a table as they are: names and types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forkpoint.relational.types import Schema
from forkpoint.table.api.nodes import quoted
from forkpoint.table.data_types import DataType, DataTypes, RowField, data_type_of


@dataclass(frozen=True)
class ResolvedSchema:
    """The columns of a table: names and types."""

    _names: tuple[str, ...]
    _types: tuple[DataType, ...]

    @staticmethod
    def physical(column_names: Sequence[str], column_data_types: Sequence[DataType]) -> ResolvedSchema:
        """Columns with these names and types."""
        return ResolvedSchema(tuple(column_names), tuple(column_data_types))

    @staticmethod
    def of(fields: Schema) -> ResolvedSchema:
        """That of a plan's columns."""
        return ResolvedSchema(tuple(field.name for field in fields), tuple(data_type_of(field.type) for field in fields))

    def get_column_names(self) -> list[str]:
        """The names."""
        return list(self._names)

    def get_column_data_types(self) -> list[DataType]:
        """The types."""
        return list(self._types)

    def get_column_count(self) -> int:
        """The number of columns."""
        return len(self._names)

    get_field_names, get_field_data_types, get_field_count = get_column_names, get_column_data_types, get_column_count

    def get_field_name(self, field_index: int) -> str | None:
        """The name of a column, by its place from 0; None if there is none."""
        return self._names[field_index] if 0 <= field_index < len(self._names) else None

    def get_field_data_type(self, field: int | str) -> DataType | None:
        """The type of a column, by its name or its place from 0; None if there is none."""
        found = field if isinstance(field, int) else self._names.index(field) if field in self._names else -1
        return self._types[found] if 0 <= found < len(self._types) else None

    def to_row_data_type(self) -> DataType:
        """The columns as ``DataTypes.ROW``."""
        fields = [RowField(*each) for each in zip(self._names, self._types, strict=True)]
        return DataTypes.ROW(fields, nullable=False)

    to_physical_row_data_type = to_row_data_type

    def __str__(self) -> str:
        lines = ",\n".join(f"  {quoted(name)} {of}" for name, of in zip(self._names, self._types, strict=True))
        return f"(\n{lines}\n)"
