"""Event time of tables: the operators that assign it behind a table's source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forkpoint.functions import WatermarkStrategy
from forkpoint.graph.specs import TimestampsSpec
from forkpoint.graph.transformations import Edge, Transformation
from forkpoint.relational.changes import WEIGHT, row_type
from forkpoint.relational.expressions import Call, Column, Expression, Item, Literal, items_of
from forkpoint.relational.operators.select import SelectSpec
from forkpoint.relational.types import BIGINT, BOOLEAN, STRING, Field, Schema
from forkpoint.sql.statements import CreateTable
from forkpoint.table.connectors.options import TABLE_IDLE_TIMEOUT
from forkpoint.wording import parse_duration_ms

if TYPE_CHECKING:
    from forkpoint.sql.binding.reading import Watermark


def idle_timeout_of(table: CreateTable, default_ms: int | None) -> int | None:
    """The time without rows after which a partition of a table no longer holds back the watermark; None: it always does."""
    own = table.options.get(TABLE_IDLE_TIMEOUT)
    return default_ms if own is None else parse_duration_ms(TABLE_IDLE_TIMEOUT, own) or None


def _unless_removed(time: Expression) -> Expression:
    """The time, or if only the key of a row that is removed is known, one that holds back no watermark."""
    removed = Call("<", (Column(WEIGHT, BIGINT), Literal(0, BIGINT.with_null(False))), BOOLEAN)
    nameless = Call("AND", (removed, Call("IS NULL", (time,), BOOLEAN)), BOOLEAN)
    first = Call("CAST", (Literal("1970-01-01 00:00:00", STRING.with_null(False)),), time.type)
    return Call("CASE", (nameless, first, time), time.type.with_null())


def with_watermarks(
    rows: tuple[Edge, ...],
    name: str,
    label: str,
    schema: Schema,
    watermark: Watermark,
    idle_timeout_ms: int | None,
    *,
    updating: bool,
) -> tuple[Edge, ...]:
    """A table's rows with event time. A computed time is a column more, named by its expression. ``label``: of this use of the
    table."""
    assert watermark.delay_ms is not None
    items = {item.name: item for item in items_of(schema)}
    time = str(watermark.time)
    items[time] = Item(time, _unless_removed(watermark.time) if updating else watermark.time)
    type = row_type(tuple(Field(item.name, item.of.type) for item in items.values()), updating=updating)
    columns = Transformation(SelectSpec(None, tuple(items.values())), "select", rows, type)
    # As in Flink, the watermark is the latest time less the delay, not 1 ms before that.
    strategy: WatermarkStrategy = WatermarkStrategy(out_of_orderness_ms=watermark.delay_ms - 1, idleness_ms=idle_timeout_ms)
    spec = TimestampsSpec(strategy, time)
    return (Edge(Transformation(spec, f"watermarks of {label}", (Edge(columns),), type, uid=f"{name}-watermarks")),)
