"""The results of statements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import uuid4

import numpy as np

from forkpoint.api.launch import is_launched
from forkpoint.api.results import CloseableIterator, JobClient
from forkpoint.api.streams.streams import DataStream
from forkpoint.config_file import state_root
from forkpoint.errors import ConfigError
from forkpoint.graph.specs import SourceSpec
from forkpoint.graph.transformations import topological_order
from forkpoint.relational.changes import WEIGHT
from forkpoint.relational.types import STRING, Field, Schema, SqlType, digits_of, precision_of
from forkpoint.storage.base import open_storage
from forkpoint.storage.places import absolute
from forkpoint.table.answers import Answer, cell, tableau
from forkpoint.table.api.ordering import Ordering
from forkpoint.table.api.resolved_schema import ResolvedSchema, TableSchema
from forkpoint.types import Row, RowKind


class ResultKind(Enum):
    """Whether a statement has a result other than OK."""

    SUCCESS = 0
    SUCCESS_WITH_CONTENT = 1


_OK = Answer(("result",), [("OK",)], is_text=True)


class TableResult:
    """What ``execute_sql`` returns: the changes of a query's result, the rows of a statement, a started job, or nothing."""

    def __init__(
        self,
        schema: Schema = (),
        stream: DataStream[Any] | None = None,
        client: JobClient | None = None,
        answer: Answer | None = None,
        named: bool = True,
        ordering: Ordering | None = None,
    ) -> None:
        self._ordering = ordering
        self._schema, self._stream, self._client, self._answer, self._named = schema, stream, client, answer, named

    def get_job_client(self) -> JobClient | None:
        """The job of an INSERT; None for other statements."""
        return self._client

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait until the job of an INSERT has ended. Raises its error."""
        if self._client is not None:
            self._client.get_job_execution_result().result(None if timeout_ms is None else timeout_ms / 1000)

    def get_resolved_schema(self) -> ResolvedSchema:
        """The columns of the result; of a job, the tables that it writes."""
        return ResolvedSchema.of(self._columns)

    def get_table_schema(self) -> TableSchema:
        """``get_resolved_schema`` by the names that Flink has replaced."""
        return TableSchema.of(self._columns)

    @property
    def _columns(self) -> Schema:
        of_answer = self._answer or (None if self._stream or self._client else _OK)
        return self._schema if of_answer is None else tuple(Field(name, STRING) for name in of_answer.columns)

    def get_result_kind(self) -> ResultKind:
        """Whether the statement has a result other than OK."""
        is_ok = self._answer is None and self._stream is None and self._client is None
        return ResultKind.SUCCESS if is_ok else ResultKind.SUCCESS_WITH_CONTENT

    def collect(self) -> CloseableIterator[Row]:
        """The rows: of a query, which runs, the changes of its result. Each row has a kind. Closing the iterator, as ``with``
        does, ends the query."""
        return CloseableIterator(self._rows())

    def _rows(self) -> Iterator[Row]:
        if self._answer is not None:
            yield from (Row.of(self._answer.columns, row, RowKind.INSERT) for row in self._answer.rows)
        if self._stream is None:
            return
        if self._ordering is None:
            yield from self._changes(self._stream, self._schema)
            return
        names = tuple(field.name for field in self._schema) if self._named else None
        rows = remaining(self._changes(self._stream, self._ordering.plan.schema))
        yield from (Row.of(names, row, RowKind.INSERT) for row in self._ordering.sorted(rows))

    def _changes(self, stream: DataStream[Any], schema: Schema) -> Iterator[Row]:
        change = Change(stream, schema, named=self._named)
        with _executed(stream) as elements:
            yield from map(change, elements)

    def print(self) -> None:
        """Print the rows as a table: of a query, which runs, the changes of its result as they come."""
        if self._stream is None:
            answer = self._answer or _OK
            lines = [str(answer.rows[0][0])] if answer.is_text else tableau(answer.columns, answer.rows)
            print("\n".join(lines))
            return
        for line in printed(self._schema, self.collect()):
            print(line, flush=True)


@contextmanager
def _executed(stream: DataStream[Any]) -> Iterator[Iterator[Any]]:
    """The stream's elements. In a program that nobody has launched as a job, the state of the query is for this one time: a
    result that is read again, or that of the program's next query, begins with the input, as in Flink."""
    env = stream.get_execution_environment()
    options, root = env.options, env.options.state_root or state_root()
    if root is None or is_launched(env.launch):
        with stream.execute_and_collect() as elements:
            yield elements
        return
    storage, place = open_storage(absolute(root)), f"queries/{uuid4().hex}"  # which all hosts can read
    env.set_state_root(f"{storage.url.rstrip('/')}/{place}")
    try:
        elements = stream.execute_and_collect()
    finally:
        env.options = options
    try:
        with elements:
            yield elements
    finally:
        storage.delete_prefix(place)


class Change:
    """An element of a stream of changes as a Row with its kind. ``named``: whether its fields have names."""

    def __init__(self, stream: DataStream[Any], schema: Schema, *, named: bool = True) -> None:
        of = stream.get_type()
        self._weighted = of is not None and WEIGHT in of.column_names
        self._fields = schema
        self._names = tuple(field.name for field in schema) if named else None

    def __call__(self, element: Any) -> Row:
        values = list(element)
        weight = values.pop() if self._weighted else 1
        if self._names is None:
            values = [_as_in_pyflink(value, field.type) for value, field in zip(values, self._fields, strict=True)]
        return Row.of(self._names, values, RowKind.INSERT if weight > 0 else RowKind.DELETE)


def _as_in_pyflink(value: Any, of: SqlType) -> Any:
    """A value as PyFlink has it: Rows without names, and a FLOAT with the digits that it has."""
    if value is None or not (of.is_nested or of.name == "FLOAT"):
        return value
    parts = [each.type for each in of.fields]
    match of.name:
        case "FLOAT":
            return float(str(np.float32(value)))
        case "ARRAY":
            return [_as_in_pyflink(each, parts[0]) for each in value]
        case "MAP":
            return {_as_in_pyflink(key, parts[0]): _as_in_pyflink(each, parts[1]) for key, each in value.items()}
    return Row(*map(_as_in_pyflink, value, parts))


def is_bounded(stream: DataStream[Any]) -> bool:
    """Whether all input of a stream ends."""
    specs = (each.spec for each in topological_order([edge.upstream for edge in stream.edges]))
    return all(spec.source.bounded for spec in specs if isinstance(spec, SourceSpec))


def check_ends(ordering: Ordering | None, ends: bool) -> None:
    """Raise ConfigError for an order of changes that never end."""
    if ordering is not None and not ends:
        raise ConfigError("ORDER BY needs LIMIT, or input that ends: the changes of a result have no order")


def remaining(changes: Iterable[Row]) -> list[tuple[Any, ...]]:
    """The rows that remain after changes."""
    found: dict[str, tuple[tuple[Any, ...], int]] = {}
    for row in changes:
        values = tuple(row)
        key = repr(values)  # NaN is not equal to itself
        count = found.get(key, (values, 0))[1] + (1 if row.get_row_kind() is RowKind.INSERT else -1)
        found[key] = values, count
    return [values for values, count in found.values() for _ in range(count)]


# -- printing ----------------------------------------------------------------------------------------------------------

_WIDTHS = {"BOOLEAN": 5, "TINYINT": 4, "SMALLINT": 6, "INT": 11, "BIGINT": 20, "DATE": 10, "TIME": 8}
_MOST = 30
"""The width of a column of a type without a largest width, as in Flink; longer values are cut."""
_MOMENT, _OF_DIGITS = 19, ((0, 0), (3, 4), (6, 7), (9, 10))


def printed(schema: Schema, changes: Iterable[Row]) -> Iterator[str]:
    """Changes as Flink prints them: the width of a column depends on its type, as rows come one by one."""
    widths = [2, *map(_width, schema)]
    border = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    yield border
    yield _line(["op", *(field.name for field in schema)], widths)
    yield border
    count = 0
    for row in changes:
        count += 1
        values = (_shown(value, field.type) for value, field in zip(row, schema, strict=True))
        yield _line([str(row.get_row_kind()), *values], widths)
    if count:
        yield border
    yield f"{count} row{'s' * (count != 1)} in set" if count else "Empty set"


def _shown(value: Any, of: SqlType) -> str:
    if not isinstance(value, datetime):
        return cell(value)
    second, fraction = value.replace(tzinfo=None).isoformat(" ", "microseconds").split(".")
    digits = precision_of(of)
    return f"{second}.{fraction.ljust(digits, '0')[:digits]}" if digits else second


def _width(field: Field) -> int:
    of = field.type
    width = _WIDTHS.get(of.name, _MOST)
    if of.name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        width = _MOMENT + next(more for digits, more in _OF_DIGITS if precision_of(of) <= digits)
    if of.name == "TIME" and isinstance(of.precision, int) and of.precision:
        width += 1 + of.precision
    if of.name == "DECIMAL":
        width = digits_of(of)[0] + 2
    return max(width, len("<NULL>") if of.nullable else 0, len(field.name))


def _line(values: Sequence[str], widths: Sequence[int]) -> str:
    shown = (value if len(value) <= width else f"{value[: width - 3]}..." for value, width in zip(values, widths, strict=True))
    return "| " + " | ".join(value.rjust(width) for value, width in zip(shown, widths, strict=True)) + " |"
