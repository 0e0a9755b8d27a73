"""The formats of messages, by the names of ``'format' = …``."""

from __future__ import annotations

from typing import Any

from forkpoint.connectors.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema
from forkpoint.connectors.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from forkpoint.connectors.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from forkpoint.connectors.formats.jsonable import TimestampFormat
from forkpoint.connectors.formats.registry import (
    ConfluentRegistryDeserializationSchema,
    ConfluentRegistrySerializationSchema,
    SchemaRegistry,
)
from forkpoint.contract.format import DeserializationSchema, SerializationSchema
from forkpoint.relational.changes import row_type
from forkpoint.relational.types import Schema
from forkpoint.table.connectors import changelogs
from forkpoint.table.connectors.avro import avro_schema
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.protobuf import protobuf_deserialization, protobuf_serialization
from forkpoint.table.connectors.raw import raw_format

FORMATS = ("json", "csv", "raw", "avro", "avro-confluent", "protobuf")
_AVRO = ("avro", "avro-confluent")


def deserialization(options: TableOptions, schema: Schema, option: str = "format") -> DeserializationSchema[Any]:
    """The schema that reads a table's messages: as rows, with weights if they are changes."""
    name, type = _name(options, option), row_type(schema)
    if name in changelogs.FORMATS:
        return changelogs.changelog_deserialization(name, options, schema)
    if name == "raw":
        return raw_format(options, schema)
    if name == "protobuf":
        return protobuf_deserialization(options, schema, option)
    if name == "csv":
        return CsvRowDeserializationSchema.Builder(type).build()
    if name in _AVRO:
        registry = name == "avro-confluent"
        of = avro_schema(options, name, schema, described=registry)
        avro = AvroRowDeserializationSchema(avro_schema_string=of, type_info=type)
        return ConfluentRegistryDeserializationSchema(avro, _registry(options)) if registry else avro
    timestamp_format(options)  # both are read
    missing, errors = options.flag("json.fail-on-missing-field"), options.flag("json.ignore-parse-errors")
    return JsonRowDeserializationSchema(type, missing, errors)


def serialization(options: TableOptions, schema: Schema, option: str = "format") -> SerializationSchema[Any]:
    """The schema that writes a table's messages: of rows, or of changes with weights."""
    name, type = _name(options, option), row_type(schema)
    timestamps = timestamp_format(options, name)
    options.prefixed(f"{name}.")  # those of the source
    if name in changelogs.FORMATS:
        return changelogs.ChangelogSerializationSchema(name, type, timestamps)
    if name == "raw":
        return raw_format(options, schema)
    if name == "protobuf":
        return protobuf_serialization(options, schema, option)
    if name in _AVRO:
        registry = name == "avro-confluent"
        avro = AvroRowSerializationSchema(avro_schema_string=avro_schema(options, name, schema, described=registry))
        return ConfluentRegistrySerializationSchema(avro, _registry(options), _subject(options, option)) if registry else avro
    return CsvRowSerializationSchema.Builder(type).build() if name == "csv" else JsonRowSerializationSchema(type, timestamps)


def timestamp_format(options: TableOptions, name: str = "json") -> TimestampFormat:
    """How a format of JSON writes timestamps."""
    iso = options.choice(f"{name}.timestamp-format.standard", ("SQL", "ISO-8601"), "SQL") == "ISO-8601"
    return "ISO-8601" if iso else "SQL"


def _registry(options: TableOptions) -> SchemaRegistry:
    options.ignore("avro-confluent.subject")  # of what is written
    return SchemaRegistry(options.required("avro-confluent.url"), options.prefixed("avro-confluent.properties."))


def _subject(options: TableOptions, option: str) -> str:
    if options.table.options["connector"] not in ("kafka", "upsert-kafka"):
        return options.required("avro-confluent.subject")
    part = "key" if option == "key.format" else "value"
    given = options.get("avro-confluent.subject")
    return given or f"{options.required('topic')}-{part}"


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


def changes_by_format(options: TableOptions) -> str:
    """The changes that a table of messages has and takes (``Connector.makes``)."""
    return "all" if has_changes(options) else "added"
