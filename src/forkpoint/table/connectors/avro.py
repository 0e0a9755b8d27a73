"""The Avro schema of a table, as Flink derives it from the columns."""

from __future__ import annotations

import json
from typing import Any

from forkpoint.relational.types import Field, Schema, SqlType, digits_of
from forkpoint.table.connectors.options import TableOptions

_PLAIN = {
    "BOOLEAN": "boolean",
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT"), "int"),
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "BYTES": "bytes",
}
_LOGICAL: dict[str, tuple[str, str]] = {
    "DATE": ("int", "date"),
    "TIME": ("int", "time-millis"),
    "TIMESTAMP": ("long", "local-timestamp-micros"),
    "TIMESTAMP_LTZ": ("long", "timestamp-micros"),
}


def avro_schema(options: TableOptions, name: str, schema: Schema, *, described: bool) -> str:
    """The schema of a table's messages. ``described``: messages say what their own schema is. Else times of which nobody knows
    whether they have milliseconds or microseconds need the option ``schema``."""
    given = options.get(f"{name}.schema")
    if given is not None:
        return given
    unknown = [field.name for field in schema if field.type.name in ("TIMESTAMP", "TIMESTAMP_LTZ")]
    if unknown and not described:
        problem = f"column {unknown[0]!r}: Avro has times in milliseconds or microseconds; give the schema: '{name}.schema'"
        raise options.error("", problem)
    return json.dumps(_record(schema, "record", "org.apache.flink.avro.generated"))


def _record(fields: Schema, name: str, namespace: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "record", "name": name, "fields": [_field(field, name) for field in fields]}
    return found if namespace is None else {**found, "namespace": namespace}


def _field(field: Field, record: str) -> dict[str, Any]:
    of = {"name": field.name, "type": _type(field.type, f"{record}_{field.name}")}
    return {**of, "default": None} if field.type.nullable else of


def _type(of: SqlType, name: str) -> Any:
    found = _of_values(of, name)
    return ["null", found] if of.nullable else found


def _of_values(of: SqlType, name: str) -> Any:
    match of.name:
        case "DECIMAL":
            precision, scale = digits_of(of)
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case "ARRAY":
            return {"type": "array", "items": _type(of.element, name)}
        case "MAP":
            return {"type": "map", "values": _type(of.fields[1].type, name)}
        case "ROW":
            return _record(of.fields, name)
    if of.name in _LOGICAL:
        stored, logical = _LOGICAL[of.name]
        return {"type": stored, "logicalType": logical}
    return _PLAIN[of.name]
