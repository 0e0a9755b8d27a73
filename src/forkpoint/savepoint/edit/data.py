"""Converts external data to rows of a state: Arrow, pandas, Spark, and anything with Arrow's C stream interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from forkpoint.errors import EditRefused, ForkpointError
from forkpoint.savepoint.format.layout import Layout, Part, Role
from forkpoint.savepoint.format.rows import Rows
from forkpoint.types import TypeInformation
from forkpoint.types.keys import canonical_column, is_key_form

RUN_ROWS = 250_000


def is_spark(data: Any) -> bool:
    """Whether the data is a Spark DataFrame."""
    return type(data).__module__.startswith("pyspark.")


def tables_of(data: Any) -> Iterator[pa.Table]:
    """The data as tables of moderate size. Raises EditRefused if it is not tabular."""
    match data:
        case pa.Table() | pa.RecordBatch():
            yield from _sized(_tables_of_items([data]))
        case _ if hasattr(data, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(data)
            yield from _sized(pa.Table.from_batches([batch]) for batch in reader)
        case Mapping():
            yield from _sized([pa.table(dict(data))])
        case Iterable() if not isinstance(data, str | bytes):
            yield from _sized(_tables_of_items(data))
        case _:
            raise _no_table(data)


def _tables_of_items(items: Iterable[Any]) -> Iterator[pa.Table]:
    rows: list[Any] = []
    for item in items:
        if isinstance(item, pa.Table | pa.RecordBatch):
            if rows:  # list state depends on the order of the items
                yield pa.Table.from_pylist(rows)
                rows = []
            yield item if isinstance(item, pa.Table) else pa.Table.from_batches([item])
        elif isinstance(item, Mapping):
            rows.append(item)
            if len(rows) >= RUN_ROWS:
                yield pa.Table.from_pylist(rows)
                rows = []
        else:
            raise _no_table(item)
    if rows:
        yield pa.Table.from_pylist(rows)


def _no_table(data: Any) -> EditRefused:
    return EditRefused(
        f"{type(data).__name__} is not a table; give a pyarrow Table, batches or reader, a pandas or Spark DataFrame, a dict of "
        "columns, or dicts for rows"
    )


def _sized(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    pending: list[pa.Table] = []
    rows = 0
    for number, table in enumerate(tables):
        if not number and not table.num_rows:
            yield table  # for its columns
        if pending and pending[-1].schema != table.schema:
            yield pa.concat_tables(pending)
            pending, rows = [], 0
        for start in range(0, table.num_rows, RUN_ROWS):
            pending.append(table.slice(start, RUN_ROWS))
            rows += pending[-1].num_rows
            if rows >= RUN_ROWS:
                yield pa.concat_tables(pending)
                pending, rows = [], 0
    if pending:
        yield pa.concat_tables(pending)


@dataclass
class Fitter:
    """Converts tables to rows of a state, by column names.

    ``columns``: the state's column names → the data's, where they differ. ``now_ms``: the ``ttl_stamp`` of entries without
    a stamp. ``first``: the index of the first row, for lists whose data has no index: they keep the order of the rows.
    """

    layout: Layout
    columns: Mapping[str, str] = field(default_factory=dict)
    now_ms: int = 0
    first: int = 0

    def __post_init__(self) -> None:
        self._where = self.layout.info.where

    def check_names(self) -> None:
        """Raises EditRefused if ``columns`` names a column that the state does not have."""
        known = {name for part in self.layout.parts for name in (part.role, *part.names)}
        if unknown := sorted(set(self.columns) - known):
            raise EditRefused(f"{self._where}: it has no column {unknown[0]!r}; it has {', '.join(self.layout.schema.names)}")

    def __call__(self, table: pa.Table) -> pa.Table:
        """The rows, with key group 0. Raises EditRefused naming a column that is missing or does not fit."""
        used: set[str] = set()
        arrays = [array for part in self.layout.parts for array in self._part(part, table, used)]
        # The data may have key groups, which are recomputed.
        if unused := [name for name in table.column_names if name not in used and name != "key_group"]:
            parts = [part for part in self.layout.parts if part.role not in ("key_group", "domain")]
            raise EditRefused(
                f"{self._where}: the data has the column {unused[0]!r}, which the state does not have (it has "
                f"{', '.join(name for part in parts for name in part.names)}); leave it out, or map it with columns="
            )
        self.first += table.num_rows
        rows = pa.Table.from_arrays(arrays, schema=self.layout.schema)
        self._check_values(rows)
        return self._with_canonical_keys(rows)

    def _with_canonical_keys(self, table: pa.Table) -> pa.Table:
        for part in self.layout.parts:
            inner = [each.type for each in part.type.fields] if part.type.fields else [part.type]
            for name, of in zip(part.names, inner, strict=True):
                if is_key_form(of):
                    at = table.column_names.index(name)
                    column = canonical_column(table.column(at).combine_chunks(), of)
                    table = table.set_column(at, table.schema.field(at), column)
        return table

    def _part(self, part: Part, table: pa.Table, used: set[str]) -> Sequence[Any]:
        count = table.num_rows
        match part.role:
            case "key_group":
                return [pa.array(np.zeros(count, np.int32))]
            case "domain":
                used.add("domain")
                return [pa.repeat(pa.scalar(self.layout.info.kind.removeprefix("timers-")), count)]
        struct = self._struct(part, table)
        if struct is not None:
            used.add(self.columns.get(part.role, part.role))
            inside = {f.name: struct.field(i) for i, f in enumerate(struct.type)}
            found = {name: inside.get(own) for name, own in zip(part.names, part.type.column_names, strict=True)}
        else:
            found = {name: self._column(self._named(part, name), table, used) for name in part.names}
        inner = [each.type for each in part.type.fields] if part.type.fields else [part.type]
        return [
            self._default(part, name, of, table) if found[name] is None else self._fitted(part, name, f, of, found[name])
            for name, f, of in zip(part.names, part.fields, inner, strict=True)
        ]

    def _named(self, part: Part, name: str) -> str:
        """The data's name of a column; ``columns`` may name a part with a single column by its role."""
        if name in self.columns:
            return self.columns[name]
        return self.columns.get(part.role, name) if len(part.names) == 1 else name

    def _column(self, name: str, table: pa.Table, used: set[str]) -> pa.Array | None:
        if name not in table.column_names:
            return None
        used.add(name)
        column = table.column(name)
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    def _struct(self, part: Part, table: pa.Table) -> Any:
        """The struct column with the part's name, which may replace a record's columns."""
        name = self.columns.get(part.role, part.role)
        flat = {self._named(part, each) for each in part.names}
        if not part.type.fields or flat <= set(table.column_names) or name not in table.column_names:
            return None
        column = table.column(name).combine_chunks()
        if not types.is_struct(column.type):
            return None
        self._check_no_nulls(name, part.type, column)
        return column

    def _default(self, part: Part, name: str, of: TypeInformation, table: pa.Table) -> pa.Array:
        """The values of an optional column that the data omits. Raises EditRefused for a required column."""
        count = table.num_rows
        if part.role == "index":
            return pa.array(np.arange(self.first, self.first + count, dtype=np.int64))
        if part.role == "ttl_stamp":
            return pa.array(np.full(count, self.now_ms, np.int64))
        if part.role == "subtask":
            return pa.array(np.zeros(count, np.int32))
        if part.raw:
            return pa.repeat(pa.scalar(b"", pa.binary()), count)
        raise EditRefused(
            f"{self._where}: the data has no column {self._named(part, name)!r} of type {of!r}; it has "
            f"{', '.join(table.column_names) or 'none'}. Rename a column, or map it with columns={{{name!r}: …}}"
        )

    def _fitted(self, part: Part, name: str, field: pa.Field, of: TypeInformation, column: Any) -> pa.Array:
        try:
            if types.is_dictionary(column.type):
                column = column.dictionary_decode()
            if part.role in ("timestamp", "ttl_stamp") and types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
            if types.is_null(column.type) or _family(column.type) == _family(field.type):
                column = column.cast(field.type)
            elif column.type != field.type:
                column = of.to_arrow(column.to_pylist())  # raises for values of other types
        except (pa.ArrowException, ForkpointError) as error:
            raise EditRefused(
                f"{self._where}: column {name!r} is {column.type} in the data and {of!r} in the state: {error}"
            ) from error
        if not field.nullable:
            self._check_no_nulls(name, of, column)
        return column

    def _check_no_nulls(self, name: str, of: TypeInformation, column: Any) -> None:
        if column.null_count:
            raise EditRefused(
                f"{self._where}: column {name!r} has {column.null_count} nulls, but {of!r} does not allow None; fill them in "
                "or leave these rows out"
            )

    def _check_values(self, table: pa.Table) -> None:
        """Raises EditRefused for values that cannot be encoded."""
        rows = Rows(self.layout, table)
        typed: tuple[Role, ...] = ("key", "map_key", "namespace", "value")
        for part in self.layout.parts:
            if part.role in typed and not part.raw:
                try:
                    rows.encoded(part.role)
                except (ForkpointError, ValueError, TypeError, OverflowError) as error:
                    raise EditRefused(
                        f"{self._where}: column {', '.join(map(repr, part.names))} of the data does not fit: {error}"
                    ) from error


_FAMILIES: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "number": (types.is_integer, types.is_floating, types.is_decimal),
    "text": (types.is_string, types.is_large_string, types.is_string_view),
    "bytes": (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view),
    "list": (types.is_list, types.is_large_list, types.is_fixed_size_list),
    "duration": (types.is_duration,),
    "time": (types.is_time,),
    "moment": (types.is_date, types.is_timestamp),
}


def _family(of: pa.DataType) -> str:
    """Arrow can cast types of a family to each other; a cast fails for values that do not fit exactly."""
    found = (family for family, tests in _FAMILIES.items() if any(test(of) for test in tests))
    return next(found, str(of).partition("<")[0])  # bool, struct, map
