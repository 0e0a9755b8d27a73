"""The formats of messages, by the names of ``'format' = …``."""

from __future__ import annotations

from typing import Any

from forkpoint.connectors.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from forkpoint.connectors.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from forkpoint.contract.format import DeserializationSchema, SerializationSchema
from forkpoint.table.connectors.options import TableOptions
from forkpoint.types import TypeInformation

FORMATS = ("json", "csv")


def deserialization(options: TableOptions, type: TypeInformation[Any], option: str = "format") -> DeserializationSchema[Any]:
    """The schema that reads a table's messages."""
    name = _name(options, option)
    if name == "csv":
        return CsvRowDeserializationSchema.Builder(type).build()
    missing, errors = options.flag("json.fail-on-missing-field"), options.flag("json.ignore-parse-errors")
    return JsonRowDeserializationSchema(type, missing, errors)


def serialization(options: TableOptions, type: TypeInformation[Any], option: str = "format") -> SerializationSchema[Any]:
    """The schema that writes a table's messages."""
    name = _name(options, option)
    return CsvRowSerializationSchema.Builder(type).build() if name == "csv" else JsonRowSerializationSchema(type)


def _name(options: TableOptions, option: str) -> str:
    if option in ("format", "value.format"):
        name = options.required("format", "value.format")
        option = "format" if options.get("format") is not None else "value.format"
    else:
        name = options.required(option)
    if name not in FORMATS:
        raise options.error(option, f"format {name!r} is not supported in tables yet; use {' or '.join(map(repr, FORMATS))}")
    return name
