"""Converts column types between forkpoint's TypeInformation and Spark's schemas and Arrow batches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_type

from forkpoint.errors import TypeNotSupported
from forkpoint.types import TypeInformation, Types
from forkpoint.types.information import cast_exactly
from forkpoint.types.kinds.containers import optional

_SCALARS: dict[type[spark.DataType], TypeInformation] = {
    spark.BooleanType: Types.BOOLEAN(),
    spark.ByteType: Types.BYTE(),
    spark.ShortType: Types.SHORT(),
    spark.IntegerType: Types.INT(),
    spark.LongType: Types.LONG(),
    spark.FloatType: Types.FLOAT(),
    spark.DoubleType: Types.DOUBLE(),
    spark.DecimalType: Types.BIG_DEC(),
    spark.StringType: Types.STRING(),
    spark.CharType: Types.STRING(),
    spark.VarcharType: Types.STRING(),
    spark.BinaryType: Types.BYTES(),
    spark.DateType: Types.SQL_DATE(),
    spark.TimestampType: Types.INSTANT(),
    spark.TimestampNTZType: Types.SQL_TIMESTAMP(),
    spark.DayTimeIntervalType: Types.DURATION(),
    spark.TimeType: Types.SQL_TIME(),
}


def type_from_frame(schema: spark.StructType, path: str = "") -> TypeInformation:
    """The type of a DataFrame's rows: a Row with the frame's columns, Optional if nullable.

    TIMESTAMP becomes an aware datetime in UTC, TIMESTAMP_NTZ a naive one, DECIMAL a Decimal. Raises TypeNotSupported, naming
    the column (prefixed with ``path``), for Spark types without a counterpart (VARIANT, INTERVAL YEAR TO MONTH,
    user-defined types).
    """
    types = [column_type(field.dataType, field.nullable, f"{path}{field.name}") for field in schema.fields]
    return Types.ROW_NAMED(list(schema.names), types)


def column_type(data_type: spark.DataType, nullable: bool, path: str) -> TypeInformation:
    """The type of a column, field or element, named by ``path``: see ``type_from_frame``."""
    found: TypeInformation | None
    match data_type:
        case spark.StructType():
            found = type_from_frame(data_type, f"{path}.")
        case spark.ArrayType():
            found = Types.LIST(column_type(data_type.elementType, data_type.containsNull, f"{path}[]"))
        case spark.MapType():
            key = column_type(data_type.keyType, False, f"{path}[key]")
            found = Types.MAP(key, column_type(data_type.valueType, data_type.valueContainsNull, f"{path}[value]"))
        case _:
            found = _SCALARS.get(type(data_type))
    if found is None:
        raise TypeNotSupported(
            f"column {path!r} has the Spark type {data_type.simpleString()}, for which forkpoint has no type; "
            "cast it in the DataFrame"
        )
    return optional(found) if nullable else found


def struct_of(schema: pa.Schema) -> spark.StructType:
    """The Spark schema of Arrow columns. Raises TypeNotSupported, naming the column."""
    fields = []
    for field in schema:
        try:
            fields.append(spark.StructField(field.name, from_arrow_type(field.type), field.nullable))
        except Exception as error:
            raise TypeNotSupported(f"column {field.name!r} of Arrow type {field.type} has no Spark type: {error}") from error
    return spark.StructType(fields)


def to_declared(batches: Iterator[pa.RecordBatch], declared: TypeInformation, uid: str) -> Iterator[pa.RecordBatch]:
    """Convert a DataFrame's record batches to the declared type's columns, in its order.

    Columns match by name, as in Spark ignoring case unless that is ambiguous. Fields of a tuple (f0, f1, …) and the
    single column of a type that is not a record match by position. Values are cast if that is lossless. Raises
    TypeNotSupported, naming the source, the column and both types.
    """
    fields = list(declared.arrow_schema)
    schema = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if schema is None or batch.schema != schema:
            schema = batch.schema
            indices = _positions(schema.names, [field.name for field in fields], uid)
        columns = [_cast(batch.column(i), field, uid) for i, field in zip(indices, fields, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=declared.arrow_schema)


def check_columns(
    schema: spark.StructType, declared: TypeInformation, uid: str, timestamp: str | None, split: str | None
) -> None:
    """Raises TypeNotSupported, before anything runs, if the frame lacks a column of the declared type, or the declared type
    lacks the timestamp or split column."""
    _positions(schema.names, declared.column_names, uid)
    for role, name in (("timestamp", timestamp), ("split", split)):
        if name is not None and name not in declared.column_names:
            raise TypeNotSupported(
                f"source {uid!r}: the {role} column {name!r} is not a field of the declared type "
                f"(it has {', '.join(declared.column_names)}); add it to the type"
            )


def _positions(names: Sequence[str], wanted: Sequence[str], uid: str) -> list[int]:
    by_position = list(wanted) == ["value"] or all(re.fullmatch(r"f\d+", name) for name in wanted)
    if by_position and len(names) == len(wanted) and not set(wanted) <= set(names):
        return list(range(len(names)))
    return [_position(names, name, uid) for name in wanted]


def _position(names: Sequence[str], name: str, uid: str) -> int:
    exact = [i for i, other in enumerate(names) if other == name]
    found = exact or [i for i, other in enumerate(names) if other.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    problem = "has no column" if not found else "has several columns"
    raise TypeNotSupported(
        f"source {uid!r}: the DataFrame {problem} {name!r} (it has {', '.join(names)}); select or rename it there"
    )


def _cast(column: pa.Array, field: pa.Field, uid: str) -> pa.Array:
    if column.type != field.type:
        try:
            column = cast_exactly(column, field.type)
        except pa.ArrowException as error:
            raise TypeNotSupported(
                f"source {uid!r}: column {field.name!r} is {column.type} in the DataFrame "
                f"and {field.type} in the declared type: {error}"
            ) from error
    if column.null_count and not field.nullable:
        raise TypeNotSupported(
            f"source {uid!r}: column {field.name!r} holds {column.null_count} nulls but is declared {field.type} "
            "without None; annotate it Optional or fill them in the DataFrame"
        )
    return column
