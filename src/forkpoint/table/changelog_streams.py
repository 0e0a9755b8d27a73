"""Streams of changes as tables: of Rows with a kind, and of changes that formats and connectors read from databases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from forkpoint.api.streams.streams import DataStream
from forkpoint.connectors.collection import CollectionSource
from forkpoint.connectors.formats.changes import change_type, changed_row
from forkpoint.contract.source import Source
from forkpoint.errors import ConfigError
from forkpoint.functions import ProcessFunction, WatermarkStrategy
from forkpoint.graph.specs import OperatorSpec, SourceSpec
from forkpoint.graph.transformations import Edge, Transformation
from forkpoint.relational.changes import WEIGHT, row_type
from forkpoint.relational.operators.changed_rows import ChangedRowsSpec, ChangesSpec
from forkpoint.relational.types import Schema as Columns
from forkpoint.runtime.operators.keyed_process import KeyedProcessSpec
from forkpoint.runtime.operators.stateless import FlatMapSpec, MapSpec, ProcessSpec
from forkpoint.table.catalog import StreamTable
from forkpoint.table.data_types import sql_type_of
from forkpoint.table.schema import Metadata, Physical, Schema, reading_of, with_digits
from forkpoint.table.streams import stream_table, table_of, time_of
from forkpoint.types import Row, RowKind, Types
from forkpoint.types.information import Field as Member
from forkpoint.types.kinds.containers import optional
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


def read_by(source: Source[Any], name: str, label: str, schema: Columns, makes: str) -> tuple[Edge, ...]:
    """The rows of a source of a table, with weights unless they are only added. ``label``: of this use of the table."""
    type, of = source.output_type(), row_type(schema, updating=makes != "added")
    spec = SourceSpec(source, WatermarkStrategy.no_watermarks())
    if changed_row(type) is None:
        return (Edge(Transformation(spec, f"table {label}", (), of, uid=name)),)
    changes = Transformation(spec, f"table {label}", (), type, uid=name)
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
    else:
        fields, edges = _of_rows(name, stream, schema)
    fields = with_digits(fields, schema)
    return StreamTable(fields, edges, None if schema is None else reading_of(schema, fields), makes, key)


def _of_rows(name: str, stream: DataStream[Any], schema: Schema | None) -> tuple[Columns, tuple[Edge, ...]]:
    """The columns of Rows with a kind, and the edges that have them, with weights."""
    columns = () if schema is None else schema._columns
    of, (edge, *_) = stream.get_type(), stream.edges
    if isinstance(of, RecordType):
        # A type with fields has no kinds. What makes the Rows makes them once more, without the type.
        upstream = edge.upstream
        untyped = replace(upstream, spec=_without_type(name, upstream.spec), output_type=Types.ANY())
        stream, members = DataStream(stream._env, (replace(edge, upstream=untyped),), Types.ANY()), of.members
    else:
        members = _declared(name, columns)
    times = [each for each in columns if isinstance(each, Metadata) and (each.key or each.name) == "rowtime"]
    made = (*members, *(Member(each.name, optional(Types.INSTANT())) for each in times))
    weighted = RecordType("row", "Row", (*made, Member(WEIGHT, Types.LONG())))
    rows = stream.process(_Weighted(tuple(each.name for each in members), bool(times)), weighted)
    return table_of(name, RecordType("row", "Row", made), rows.edges, updating=True)


def _without_type(name: str, spec: OperatorSpec) -> OperatorSpec:
    if isinstance(spec, SourceSpec) and isinstance(spec.source, CollectionSource):
        return replace(spec, source=CollectionSource(spec.source.elements, Types.ANY()))
    if isinstance(spec, MapSpec | FlatMapSpec | ProcessSpec | KeyedProcessSpec):
        return spec
    raise ConfigError(f"{name!r}: its Rows have lost their kinds, which a type with fields lacks; give it the type Types.ANY()")


def _declared(name: str, columns: Sequence[Any]) -> tuple[Member, ...]:
    """The columns of Rows without a type of their own."""
    found = [each for each in columns if isinstance(each, Physical)]
    if not found:
        raise ConfigError(
            f"{name!r}: Rows without a type (Types.ANY()) need a Schema with the types of their columns: column(name, type)"
        )
    return tuple(Member(each.name, sql_type_of(each.type).stream_type) for each in found)


@dataclass
class _Weighted(ProcessFunction[Row, Row]):
    """Rows with weights from Rows with a kind. ``timed``: also with their timestamps."""

    names: tuple[str, ...]
    timed: bool

    def process_element(self, value: Row, ctx: ProcessFunction.Context, /) -> Iterator[Row]:
        named = value.field_names is not None and set(self.names) <= set(value.field_names)
        values = [value[name] for name in self.names] if named else list(value)
        times = [time_of(ctx)] if self.timed else []
        added = value.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER)
        yield Row(*values, *times, 1 if added else -1)
