"""Streams of changes as tables: of Rows with a kind, and of changes that formats and connectors read from databases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from forkpoint.api.streams.streams import DataStream
from forkpoint.connectors.collection import CollectionSource
from forkpoint.connectors.formats.changes import change_type, changed_row
from forkpoint.contract.source import Source
from forkpoint.errors import ConfigError
from forkpoint.functions import MapFunction, WatermarkStrategy
from forkpoint.graph.specs import SourceSpec
from forkpoint.graph.transformations import Edge, Transformation
from forkpoint.relational.changes import WEIGHT, row_type
from forkpoint.relational.operators.changed_rows import ChangedRowsSpec, ChangesSpec
from forkpoint.relational.types import Field
from forkpoint.relational.types import Schema as Columns
from forkpoint.table.catalog import StreamTable
from forkpoint.table.data_types import sql_type_of
from forkpoint.table.schema import Physical, Schema, reading_of
from forkpoint.table.streams import stream_table, table_of
from forkpoint.types import Row, RowKind, Types
from forkpoint.types.information import Field as Member
from forkpoint.types.kinds.records import RecordType


@dataclass(frozen=True)
class ChangelogMode:
    """Which changes a stream has."""

    _makes: str

    @staticmethod
    def insert_only() -> ChangelogMode:
        """Only added rows."""
        return ChangelogMode("added")

    @staticmethod
    def upsert() -> ChangelogMode:
        """The new row of a primary key, or its removal: updates need no row before them."""
        return ChangelogMode("upserts")

    @staticmethod
    def all() -> ChangelogMode:
        """Added and removed rows, and updates with the rows before and after them."""
        return ChangelogMode("all")


def read_by(source: Source[Any], name: str, schema: Columns, makes: str) -> tuple[Edge, ...]:
    """The rows of a source of a table, with weights unless they are only added."""
    type, of = source.output_type(), row_type(schema, updating=makes != "added")
    spec = SourceSpec(source, WatermarkStrategy.no_watermarks())
    if changed_row(type) is None:
        return (Edge(Transformation(spec, f"table {name}", (), of, uid=name)),)
    changes = Transformation(spec, f"table {name}", (), type, uid=name)
    return (Edge(Transformation(ChangedRowsSpec(makes == "upserts"), "changed rows", (Edge(changes),), of)),)


def as_changes(rows: tuple[Edge, ...], schema: Columns) -> tuple[Edge, ...]:
    """Rows with weights as Changes, for a sink that takes them."""
    return (Edge(Transformation(ChangesSpec(), "changes", rows, change_type(row_type(schema)))),)


def changelog_table(name: str, stream: DataStream[Any], schema: Schema | None, mode: ChangelogMode | None) -> StreamTable:
    """A stream of changes as a table. Raises ConfigError."""
    makes, key = (mode or ChangelogMode.all())._makes, () if schema is None else schema._key
    if makes == "upserts" and not key:
        raise ConfigError(f"{name!r}: upserts are by a key; give a Schema with primary_key(…)")
    row = changed_row(stream.get_type())
    if row is not None and makes != "added":
        weighted = RecordType("row", "Row", (*row.members, Member(WEIGHT, Types.LONG())))
        rows = Transformation(ChangedRowsSpec(makes == "upserts"), "changed rows", stream.edges, weighted)
        fields, edges = table_of(name, row, (Edge(rows),), updating=True)
    elif makes == "added":
        return stream_table(name, stream, schema)
    elif (collected := _collected(name, stream)) is not None:
        fields, edges = collected
    else:
        fields = _declared(name, schema)
        edges = stream.map(_Weighted(tuple(each.name for each in fields)), row_type(fields, updating=True)).edges
    return StreamTable(fields, edges, None if schema is None else reading_of(schema, fields), makes, key)


def _collected(name: str, stream: DataStream[Any]) -> tuple[Columns, tuple[Edge, ...]] | None:
    """The columns of given Rows of a type with fields, and the edges that have them, with weights for the Rows' kinds; None for
    other streams, whose type has no kinds."""
    of, (edge, *_) = stream.get_type(), stream.edges
    spec = edge.upstream.spec
    if not (isinstance(of, RecordType) and isinstance(spec, SourceSpec) and isinstance(spec.source, CollectionSource)):
        return None
    weighted = RecordType("row", "Row", (*of.members, Member(WEIGHT, Types.LONG())))
    rows = [Row(*each, _weight(each)) for each in spec.source.elements]
    source = Transformation(replace(spec, source=CollectionSource(rows, weighted)), name, (), weighted, uid=name)
    return table_of(name, of, (Edge(source),), updating=True)


def _weight(row: Any) -> int:
    removes = isinstance(row, Row) and row.get_row_kind() in (RowKind.UPDATE_BEFORE, RowKind.DELETE)
    return -1 if removes else 1


def _declared(name: str, schema: Schema | None) -> tuple[Field, ...]:
    """The columns of Rows, which have no type of their own because they have a kind."""
    found = () if schema is None else tuple(each for each in schema._columns if isinstance(each, Physical))
    if not found:
        raise ConfigError(
            f"{name!r}: a stream of changes has Rows with a kind (Types.ANY()), and a Schema with the types of their columns: "
            "column(name, type); or it has a format's Changes"
        )
    return tuple(Field(each.name, sql_type_of(each.type)) for each in found)


@dataclass
class _Weighted(MapFunction[Row, Row]):
    """Rows with weights from Rows with a kind."""

    names: tuple[str, ...]

    def map(self, value: Row) -> Row:
        named = value.field_names is not None
        values = [value[name] for name in self.names] if named else list(value)
        return Row(*values, _weight(value))
