"""Schema: what a program adds to the columns of a stream that becomes a table, by PyFlink's names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from forkpoint.errors import ConfigError
from forkpoint.relational.types import Field
from forkpoint.sql.errors import Text
from forkpoint.sql.statements import ComputedColumn, Query, WatermarkClause

if TYPE_CHECKING:
    from forkpoint.sql.binding.reading import Reading

_SOURCE_WATERMARK = "SOURCE_WATERMARK()"


@dataclass(frozen=True)
class Schema:
    """Computed columns and the event time of a table, created with ``new_builder()``."""

    _computed: tuple[tuple[str, str], ...] = ()
    _watermark: tuple[str, str] | None = None

    @staticmethod
    def new_builder() -> Schema.Builder:
        """A builder of a schema."""
        return Schema.Builder()

    class Builder:
        """Builds a schema. The methods return the builder."""

        def __init__(self) -> None:
            self._schema = Schema()

        def column_by_expression(self, column_name: str, expr: str) -> Schema.Builder:
            """Add a column that SQL computes from the stream's fields, such as ``"TO_TIMESTAMP_LTZ(ms, 3)"``."""
            self._schema = replace(self._schema, _computed=(*self._schema._computed, (column_name, expr)))
            return self

        def watermark(self, column_name: str, watermark_expr: str) -> Schema.Builder:
            """Make a column event time, with watermarks such as ``"ts - INTERVAL '5' SECOND"``.

            ``"SOURCE_WATERMARK()"`` keeps the watermarks of the stream, whose timestamps the column must have.
            """
            self._schema = replace(self._schema, _watermark=(column_name, watermark_expr))
            return self

        def build(self) -> Schema:
            """The schema."""
            return self._schema


def reading_of(schema: Schema, fields: tuple[Field, ...]) -> Reading:
    """The columns of a table in queries. Raises ConfigError."""
    from forkpoint.sql.binding.reading import bind_reading  # loads sqlglot

    names = [field.name for field in fields]
    for name, _ in schema._computed:
        if name in names:
            raise ConfigError(f"column {name!r} is there already; give the computed column another name")
        names.append(name)
    computed = tuple(ComputedColumn(name, _query(of), len(fields)) for name, of in schema._computed)
    if schema._watermark is None:
        return bind_reading(Text(""), fields, computed, None)
    column, of = schema._watermark
    own = of.strip().upper() == _SOURCE_WATERMARK
    clause = WatermarkClause(column, 0, _query(f"`{column}`" if own else of))
    found = bind_reading(Text(of), fields, computed, clause)
    return replace(found, watermark=replace(found.watermark, delay_ms=None)) if own and found.watermark else found


def _query(expression: str) -> Query:
    return Query(Text(expression, "Schema"), 0, len(expression))
