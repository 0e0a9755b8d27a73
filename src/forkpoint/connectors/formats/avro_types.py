"""The types of Avro's schemas."""

from __future__ import annotations

from typing import Any

from forkpoint.errors import ConfigError
from forkpoint.types import TypeInformation, Types
from forkpoint.types.containers import MapType, SequenceType, optional
from forkpoint.types.records import row_type

_PRIMITIVES: dict[Any, TypeInformation[Any]] = {
    "boolean": Types.BOOLEAN(),
    "int": Types.INT(),
    "long": Types.LONG(),
    "float": Types.FLOAT(),
    "double": Types.DOUBLE(),
    "bytes": Types.BYTES(),
    "fixed": Types.BYTES(),
    "string": Types.STRING(),
    "enum": Types.STRING(),
}
_LOGICAL: dict[Any, TypeInformation[Any]] = {
    ("int", "date"): Types.SQL_DATE(),
    ("int", "time-millis"): Types.SQL_TIME(),
    ("long", "time-micros"): Types.SQL_TIME(),
    ("long", "timestamp-millis"): Types.INSTANT(),
    ("long", "timestamp-micros"): Types.INSTANT(),
    ("long", "local-timestamp-millis"): Types.SQL_TIMESTAMP(),
    ("long", "local-timestamp-micros"): Types.SQL_TIMESTAMP(),
    ("bytes", "decimal"): Types.BIG_DEC(),
    ("fixed", "decimal"): Types.BIG_DEC(),
    ("string", "uuid"): Types.UUID(),
}


def avro_type(schema: Any) -> TypeInformation[Any]:
    """The type of a schema in fastavro's form: a record's is a ROW, a union's with null is optional, another union's ANY.

    Raises ConfigError for a record that contains itself.
    """
    named: dict[str, Any] = dict(schema.get("__named_schemas", {})) if isinstance(schema, dict) else {}
    return _type(schema, named, ())


def _type(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> TypeInformation[Any]:
    if isinstance(schema, list):
        return _union(schema, named, inside)
    if isinstance(schema, str):
        primitive = _PRIMITIVES.get(schema)
        if primitive is not None:
            return primitive
        return Types.ANY() if schema == "null" else _type(named[schema], named, inside)
    kind = schema["type"]
    if "name" in schema:
        named[schema["name"]] = schema
    if kind in ("record", "error"):
        name = schema["name"]
        if name in inside:
            raise ConfigError(
                f"the Avro record {name} contains itself, so it has no columns; give type_info, with Types.ANY() for that field"
            )
        fields = [(field["name"], _type(field["type"], named, (*inside, name))) for field in schema["fields"]]
        return row_type([field for field, _ in fields], [type for _, type in fields])
    if kind == "array":
        return SequenceType("list", _type(schema["items"], named, inside))
    if kind == "map":
        return MapType(Types.STRING(), _type(schema["values"], named, inside))
    logical = _LOGICAL.get((kind, schema.get("logicalType"))) if isinstance(kind, str) else None
    return logical or _PRIMITIVES.get(kind) or _type(kind, named, inside)


def _union(members: list[Any], named: dict[str, Any], inside: tuple[str, ...]) -> TypeInformation[Any]:
    others = [member for member in members if member not in ("null", {"type": "null"})]
    if len(others) != 1:
        return Types.ANY()
    of = _type(others[0], named, inside)
    return of if len(others) == len(members) or of.kind == "any" else optional(of)
