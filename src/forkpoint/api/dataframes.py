"""The element type of a Spark DataFrame, from its schema. Never imports pyspark."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

from forkpoint.errors import GraphError
from forkpoint.types import TypeInformation, Types, type_of

# Spark type names and their Python types.
_SIMPLE: dict[str, Any] = {
    "byte": Types.BYTE(), "tinyint": Types.BYTE(), "short": Types.SHORT(), "smallint": Types.SHORT(),
    "integer": Types.INT(), "int": Types.INT(), "long": Types.LONG(), "bigint": Types.LONG(),
    "float": Types.FLOAT(), "double": Types.DOUBLE(),
    "string": str, "char": str, "varchar": str, "boolean": bool, "binary": bytes, "date": date, "decimal": Decimal,
    "timestamp": Types.INSTANT(),  # Spark's plain timestamp is a point in time
    "timestamp_ntz": datetime,
}  # fmt: skip


def check_frame(frame: Any, columns: dict[str, str | None]) -> None:
    """Raise GraphError unless it is a DataFrame with the columns that options name (option → column)."""
    if not hasattr(frame, "schema") or not hasattr(frame, "isStreaming"):
        raise GraphError(f"from_dataframe() takes a Spark DataFrame, not {type(frame).__name__}")
    for option, column in columns.items():
        if column is not None and column not in frame.columns:
            raise GraphError(
                f"from_dataframe({option}={column!r}): the DataFrame has no such column; it has "
                f"{', '.join(frame.columns)}"
            )


def frame_type(frame: Any) -> TypeInformation:
    """The Row type of the frame's columns. GraphError for a column whose Spark type is not supported."""
    return _row_type(frame.schema.fields, "")


def _row_type(fields: list[Any], prefix: str) -> TypeInformation:
    return Types.ROW_NAMED([f.name for f in fields], [_column_type(f.dataType, prefix + f.name) for f in fields])


def _column_type(spark_type: Any, column: str) -> TypeInformation:
    name = spark_type.typeName()
    if name in _SIMPLE:
        return type_of(_SIMPLE[name])
    if name == "array":
        return Types.LIST(_column_type(spark_type.elementType, column))
    if name == "map":
        return Types.MAP(_column_type(spark_type.keyType, column), _column_type(spark_type.valueType, column))
    if name == "struct":
        return _row_type(spark_type.fields, f"{column}.")
    raise GraphError(
        f"from_dataframe(): column {column!r} has Spark type {spark_type.simpleString()}, which is not supported; cast or "
        "drop it in the DataFrame, or give the elements' type with type="
    )
