"""Windows of a number of rows: a process function emits the rows of each window that is full, and they are grouped at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from forkpoint.errors import ConfigError
from forkpoint.functions import KeyedProcessFunction
from forkpoint.functions.context import RuntimeContext
from forkpoint.functions.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from forkpoint.relational.event_time import is_processing_time
from forkpoint.relational.types import BIGINT, Field, SqlType, row_of
from forkpoint.table.api.nodes import Interval, Name, Node, literal, quoted
from forkpoint.table.api.window import GroupWindow
from forkpoint.table.functions import ptf
from forkpoint.types import Row, TypeInformation, Types

if TYPE_CHECKING:
    from forkpoint.table.api.table import Table

_NUMBER, _TIME, _ALL = "$window", "$time", "$all"
_ROW = Field("$row", SqlType("INT", nullable=False))
"""What is kept of rows without columns beside the key."""
AT_ONCE = GroupWindow("TUMBLE", (Interval(1, "MILLI"),), Name(_TIME), "$epoch")
"""The windows of processing time that the rows are grouped by: those of one window come in one epoch, which has one time."""


class RowWindows(KeyedProcessFunction[Any, Row, Row]):
    """Emits the rows of each full window of ``size`` rows, of which one begins every ``slide`` rows, with the window's number."""

    def __init__(self, size: int, slide: int, of: TypeInformation[Any]) -> None:
        self._size, self._slide, self._of = size, slide, of

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))
        self._rows = runtime_context.get_list_state(ListStateDescriptor("rows", self._of))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context[Any]) -> Iterator[Row]:
        at, width = self._seen.value() or 0, len(self._of.fields or ())
        self._seen.update(at + 1)
        if at % self._slide < self._size:  # otherwise between two windows
            self._rows.add(Row(*list(value)[len(value) - width :]))
        number, rest = divmod(at + 1 - self._size, self._slide)
        if number >= 0 and not rest:
            rows = list(self._rows.get())
            self._rows.update(rows[self._slide :])
            for row in rows:
                yield Row(*row, number)


def in_row_windows(table: Table, window: GroupWindow, keys: Sequence[Node]) -> tuple[Table, list[Node]]:
    """The rows of full windows, and what to group them by. Raises ConfigError."""
    slide, size = window.rows
    if not (isinstance(window.time, Name) and is_processing_time(table._plan, window.time.name)):
        raise ConfigError("windows of a number of rows are on a column PROCTIME(), as in Flink")
    names = [key.name for key in keys if isinstance(key, Name)]
    if len(names) < len(keys):
        raise ConfigError("windows of a number of rows are grouped by columns; select() other expressions before")
    others = [field for field in table._plan.schema if field.name not in (*names, window.time.name)] or [_ROW]
    of = Types.ROW_NAMED([field.name for field in others], [field.type.stream_type for field in others])
    result = row_of([*(field.name for field in others), _NUMBER], [*(field.type for field in others), BIGINT])
    words = [f"windows of {size} rows", f"every {slide}" * (slide != size), f"by {' '.join(names)}" * bool(names)]
    name = re.sub(r"\W+", "_", " ".join(filter(None, words)))  # also the uid of the state, which fits no other windows
    function = table._session.catalog.functions.name_of(ptf(RowWindows(size, slide, of), result, name))
    keyed = ", ".join(map(quoted, names or [_ALL]))
    columns = ", ".join([keyed, *(quoted(field.name) for field in others)])
    text = f"SELECT {columns} FROM (SELECT *, 0 AS {quoted(_ALL)}, 0 AS {quoted(_ROW.name)} FROM `table`)"
    rows = table._bound(text, table=table)
    call = f"{function}(TABLE `rows` PARTITION BY ({keyed}), uid => {literal(function)})"
    found = table._bound(f"SELECT *, PROCTIME() AS {quoted(_TIME)} FROM {call}", rows=rows)
    return found, [Name(AT_ONCE.name), *keys, Name(_NUMBER)]
