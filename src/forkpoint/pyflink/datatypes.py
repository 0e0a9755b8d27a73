"""The types of files' columns, of `DataTypes`: formats of files take decimals with their digits apart."""

from __future__ import annotations

from forkpoint import DataType, TypeInformation, Types


def file_type(of: DataType) -> TypeInformation:
    """The type of a column's values."""
    parts = [file_type(part.data_type) for part in of.parts]
    match of.name:
        case "DECIMAL":
            return Types.BIG_DEC()
        case "ARRAY":
            return Types.BASIC_ARRAY(*parts)
        case "MAP":
            return Types.MAP(*parts)
        case "ROW":
            return Types.ROW_NAMED(of.names, parts)
    return of.nullable().sql.value_type


def digits_of(of: DataType) -> tuple[int, int] | None:
    """Precision and scale of a decimal, or of decimals inside of it."""
    if of.name == "DECIMAL":
        precision, scale = of.numbers
        return precision, scale
    return next((found for part in of.parts if (found := digits_of(part.data_type))), None)
