"""Event time of tables: the operators that assign it behind a table's source."""

from __future__ import annotations

from forkpoint.api.configuration import parse_duration_ms
from forkpoint.functions import WatermarkStrategy
from forkpoint.graph.specs import TimestampsSpec
from forkpoint.graph.transformations import Edge, Transformation
from forkpoint.relational.changes import row_type
from forkpoint.relational.expressions import Column, Item
from forkpoint.relational.operators.select import SelectSpec
from forkpoint.relational.types import Field
from forkpoint.sql.reading import Watermark
from forkpoint.sql.statements import CreateTable
from forkpoint.table.connectors.options import TABLE_IDLE_TIMEOUT

IDLE_TIMEOUT = "table.exec.source.idle-timeout"


def with_watermarks(
    source: Transformation, name: str, table: CreateTable, watermark: Watermark, idle_timeout_ms: int | None
) -> Transformation:
    """A table's rows with event time. A computed time is a column more, named by its expression."""
    items = [Item(field.name, Column(field.name, field.type)) for field in table.schema]
    time = str(watermark.time)
    if not isinstance(watermark.time, Column):
        items.append(Item(time, watermark.time))
    type = row_type(tuple(Field(item.name, item.of.type) for item in items))
    rows = Transformation(SelectSpec(None, tuple(items)), "select", (Edge(source),), type)
    own = table.options.get(TABLE_IDLE_TIMEOUT)
    idle = idle_timeout_ms if own is None else parse_duration_ms(TABLE_IDLE_TIMEOUT, own) or None
    # As in Flink, the watermark is the latest time less the delay, not 1 ms before that.
    strategy: WatermarkStrategy = WatermarkStrategy(out_of_orderness_ms=watermark.delay_ms - 1, idleness_ms=idle)
    spec = TimestampsSpec(strategy, time)
    return Transformation(spec, f"watermarks of {name}", (Edge(rows),), type, uid=f"{name}-watermarks")
