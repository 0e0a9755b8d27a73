"""The columns of a table as they are: names and types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from forkpoint.errors import WrongType
from forkpoint.relational.types import Schema
from forkpoint.table.api.nodes import quoted
from forkpoint.table.data_types import DataType, DataTypes, RowField, data_type_of


@dataclass(frozen=True)
class ResolvedSchema:
    """The columns of a table: names and types."""

    _names: tuple[str, ...]
    _types: tuple[DataType, ...]

    @classmethod
    def physical(cls, column_names: Sequence[str], column_data_types: Sequence[DataType]) -> Self:
        """Columns with these names and types."""
        return cls(tuple(column_names), tuple(column_data_types))

    @classmethod
    def of(cls, fields: Schema) -> Self:
        """That of a plan's columns."""
        return cls(tuple(field.name for field in fields), tuple(data_type_of(field.type) for field in fields))

    def get_column_names(self) -> list[str]:
        """The names."""
        return list(self._names)

    def get_column_data_types(self) -> list[DataType]:
        """The types."""
        return list(self._types)

    def get_column_count(self) -> int:
        """The number of columns."""
        return len(self._names)

    def to_row_data_type(self) -> DataType:
        """The columns as ``DataTypes.ROW``."""
        fields = [RowField(*each) for each in zip(self._names, self._types, strict=True)]
        return DataTypes.ROW(fields, nullable=False)

    to_physical_row_data_type = to_row_data_type

    def __str__(self) -> str:
        lines = ",\n".join(f"  {quoted(name)} {of}" for name, of in zip(self._names, self._types, strict=True))
        return f"(\n{lines}\n)"


@dataclass(frozen=True, init=False, repr=False)
class TableSchema(ResolvedSchema):
    """The columns of a table with the methods that Flink has replaced by ``ResolvedSchema``'s."""

    def __init__(self, field_names: Sequence[str], data_types: Sequence[DataType]) -> None:
        super().__init__(tuple(field_names), tuple(data_types))

    def get_field_name(self, field_index: int) -> str | None:
        """The name of a column, by its place from 0; None if there is none."""
        return self._names[field_index] if 0 <= field_index < len(self._names) else None

    def get_field_data_type(self, field: int | str) -> DataType | None:
        """The type of a column, by its name or its place from 0; None if there is none. WrongType for anything else."""
        if not isinstance(field, int | str):
            raise WrongType(f"a field is found by its name or its place, not by {field!r}")
        found = field if isinstance(field, int) else self._names.index(field) if field in self._names else -1
        return self._types[found] if 0 <= found < len(self._types) else None

    get_field_names = ResolvedSchema.get_column_names
    get_field_data_types = ResolvedSchema.get_column_data_types
    get_field_count = ResolvedSchema.get_column_count

    def copy(self) -> Self:
        """The same columns."""
        return self

    def __str__(self) -> str:
        lines = (f" |-- {name}: {of}\n" for name, of in zip(self._names, self._types, strict=True))
        return f"root\n{''.join(lines)}"

    __repr__ = __str__

    @staticmethod
    def builder() -> TableSchema.Builder:
        """A builder of a schema."""
        return TableSchema.Builder()

    class Builder:
        """Builds a schema. ``field`` returns the builder."""

        def __init__(self) -> None:
            self._fields: dict[str, DataType] = {}

        def field(self, name: str, data_type: DataType) -> TableSchema.Builder:
            """Add a column."""
            self._fields[name] = data_type
            return self

        def build(self) -> TableSchema:
            """The schema."""
            return TableSchema(list(self._fields), list(self._fields.values()))
