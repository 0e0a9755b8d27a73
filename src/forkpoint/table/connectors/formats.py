"""The formats of messages, by the names of ``'format' = …``."""

from __future__ import annotations

from typing import Any

from forkpoint.connectors.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from forkpoint.connectors.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from forkpoint.contract.format import DeserializationSchema, SerializationSchema
from forkpoint.relational.changes import row_type
from forkpoint.relational.types import Schema
from forkpoint.table.connectors import changelogs
from forkpoint.table.connectors.options import TableOptions

FORMATS = ("json", "csv")


def deserialization(options: TableOptions, schema: Schema, option: str = "format") -> DeserializationSchema[Any]:
    """The schema that reads a table's messages: as rows, with weights if they are changes."""
    name, type = _name(options, option), row_type(schema)
    if name in changelogs.FORMATS:
        return changelogs.changelog_deserialization(name, options, schema)
    if name == "csv":
        return CsvRowDeserializationSchema.Builder(type).build()
    missing, errors = options.flag("json.fail-on-missing-field"), options.flag("json.ignore-parse-errors")
    return JsonRowDeserializationSchema(type, missing, errors)


def serialization(options: TableOptions, schema: Schema, option: str = "format") -> SerializationSchema[Any]:
    """The schema that writes a table's messages: of rows, or of changes with weights."""
    name, type = _name(options, option), row_type(schema)
    options.prefixed(f"{name}.")  # those of the source
    if name in changelogs.FORMATS:
        return changelogs.ChangelogSerializationSchema(name, type)
    return CsvRowSerializationSchema.Builder(type).build() if name == "csv" else JsonRowSerializationSchema(type)


def _name(options: TableOptions, option: str) -> str:
    if option in ("format", "value.format"):
        name = options.required("format", "value.format")
        option = "format" if options.get("format") is not None else "value.format"
    else:
        name = options.required(option)
    of_rows = option == "key.format" or options.table.options["connector"] == "upsert-kafka"
    known = FORMATS if of_rows else (*FORMATS, *changelogs.FORMATS)
    if name not in known:
        raise options.error(option, f"format {name!r} is not supported here; use {' or '.join(map(repr, known))}")
    return name


def has_changes(options: TableOptions) -> bool:
    """Whether a table's messages are changes, which also remove rows."""
    return (options.get("format") or options.get("value.format")) in changelogs.FORMATS
