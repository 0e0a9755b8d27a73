"""The types of JSON schemas, as Flink's JsonRowSchemaConverter has them, except that a date-time has a zone."""

from __future__ import annotations

from typing import Any

import msgspec

from forkpoint.errors import ConfigError
from forkpoint.types import TypeInformation, Types, type_of

_SCALARS: dict[str, TypeInformation[Any]] = {
    "string": Types.STRING(),
    "number": Types.BIG_DEC(),
    "integer": Types.BIG_DEC(),
    "boolean": Types.BOOLEAN(),
    "null": type_of(None),
}
_FORMATS: dict[str, TypeInformation[Any]] = {
    "date": Types.SQL_DATE(),
    "time": Types.SQL_TIME(),
    "date-time": Types.INSTANT(),
}


def json_schema_type(text: str) -> TypeInformation[Any]:
    """The type of a JSON schema. Raises ConfigError for what has no type, such as several alternatives."""
    try:
        schema = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"not a JSON schema ({error}): {text[:200]}") from None
    return _type(schema, schema, "<root>", 0)


def _type(schema: Any, root: Any, path: str, depth: int) -> TypeInformation[Any]:
    if not isinstance(schema, dict) or depth > 100:
        raise ConfigError(f"JSON schema: {path} has no schema that ends; give type_info instead")
    if "$ref" in schema:
        return _type(_referenced(schema["$ref"], root, path), root, path, depth + 1)
    alternatives = schema.get("oneOf")
    if alternatives is None:
        kinds = schema.get("type")
        alternatives = [{**schema, "type": kind} for kind in kinds] if isinstance(kinds, list) else [schema]
    others = [each for each in alternatives if not (isinstance(each, dict) and each.get("type") == "null")]
    if len(others) > 1:
        raise ConfigError(f"JSON schema: {path} has several types besides null; give type_info instead")
    if others != [schema]:
        return _type(others[0], root, path, depth + 1) if others else _SCALARS["null"]
    kind = schema.get("type")
    if kind == "object":
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            raise ConfigError(f"JSON schema: the object {path} has no properties; give type_info instead")
        return Types.ROW_NAMED(
            list(properties), [_type(each, root, f"{path}/{name}", depth + 1) for name, each in properties.items()]
        )
    if kind == "array":
        items = schema.get("items")
        if isinstance(items, list):
            return Types.ROW([_type(each, root, f"{path}[{i}]", depth + 1) for i, each in enumerate(items)])
        return Types.OBJECT_ARRAY(_type(items, root, f"{path}[]", depth + 1))
    if kind == "string" and schema.get("contentEncoding") == "base64":
        return Types.BYTES()
    found = (_FORMATS.get(schema.get("format", "")) if kind == "string" else None) or _SCALARS.get(str(kind))
    if found is None:
        raise ConfigError(f"JSON schema: {path} has the unsupported type {kind!r}; give type_info instead")
    return found


def _referenced(reference: Any, root: Any, path: str) -> Any:
    found = root
    for part in str(reference).removeprefix("#").strip("/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    if not str(reference).startswith("#/") or found is None:
        raise ConfigError(f"JSON schema: {path} refers to {reference!r}, which is not in the schema")
    return found
