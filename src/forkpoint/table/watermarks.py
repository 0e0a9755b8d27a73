"""Event time of tables: the operators that assign it behind a table's source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forkpoint.api.configuration import parse_duration_ms
from forkpoint.functions import WatermarkStrategy
from forkpoint.graph.specs import TimestampsSpec
from forkpoint.graph.transformations import Edge, Transformation
from forkpoint.relational.changes import row_type
from forkpoint.relational.expressions import Column, Item, items_of
from forkpoint.relational.operators.select import SelectSpec
from forkpoint.relational.types import Field, Schema
from forkpoint.sql.statements import CreateTable
from forkpoint.table.connectors.options import TABLE_IDLE_TIMEOUT

if TYPE_CHECKING:
    from forkpoint.sql.binding.reading import Watermark

IDLE_TIMEOUT = "table.exec.source.idle-timeout"


def idle_timeout_of(table: CreateTable, default_ms: int | None) -> int | None:
    """The time without rows after which a partition of a table no longer holds back the watermark; None: it always does."""
    own = table.options.get(TABLE_IDLE_TIMEOUT)
    return default_ms if own is None else parse_duration_ms(TABLE_IDLE_TIMEOUT, own) or None


def with_watermarks(
    rows: tuple[Edge, ...], name: str, schema: Schema, watermark: Watermark, idle_timeout_ms: int | None
) -> tuple[Edge, ...]:
    """A table's rows with event time. A computed time is a column more, named by its expression."""
    assert watermark.delay_ms is not None
    items = [*items_of(schema)]
    time = str(watermark.time)
    if not isinstance(watermark.time, Column):
        items.append(Item(time, watermark.time))
    type = row_type(tuple(Field(item.name, item.of.type) for item in items))
    columns = Transformation(SelectSpec(None, tuple(items)), "select", rows, type)
    # As in Flink, the watermark is the latest time less the delay, not 1 ms before that.
    strategy: WatermarkStrategy = WatermarkStrategy(out_of_orderness_ms=watermark.delay_ms - 1, idleness_ms=idle_timeout_ms)
    spec = TimestampsSpec(strategy, time)
    return (Edge(Transformation(spec, f"watermarks of {name}", (Edge(columns),), type, uid=f"{name}-watermarks")),)
