"""Tables of databases as bounded sources: one query reads all rows, or several, each the rows of a range of a column's values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from forkpoint.connectors.counter import CounterEnumerator
from forkpoint.connectors.database.engine import check_url, create_engine, shown
from forkpoint.connectors.database.errors import raising_errors
from forkpoint.connectors.formats.records import RecordConverter
from forkpoint.contract.source import JSON, Source, SourceReader, SplitEnumerator, SplitRange
from forkpoint.errors import RecordParseError
from forkpoint.relational.changes import row_type
from forkpoint.relational.types import INTEGERS
from forkpoint.table.connectors.jdbc import LOOKUP_OPTIONS, SCAN_OPTIONS, UNNEEDED, jdbc_url
from forkpoint.table.connectors.jdbc_values import readings
from forkpoint.table.connectors.options import TableOptions
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.records import RecordType

_FETCHED = 10_000


def jdbc_source(options: TableOptions) -> Source[Any]:
    options.unneeded(UNNEEDED)
    options.ignore(*LOOKUP_OPTIONS)
    given = {name: options.get(name) for name in SCAN_OPTIONS[:-1]}
    column, parts = given["scan.partition.column"], [(0, 0)]
    if any(value is not None for value in given.values()):
        missing = [name for name, value in given.items() if value is None]
        if missing or column is None:
            raise options.error("", f"a scan in parts needs all of {', '.join(given)}; {missing[0]} is missing")
        if column not in (names := {each.name for each in options.table.schema if each.type.name in INTEGERS}):
            listed = ", ".join(sorted(names)) or "none"
            raise options.error("scan.partition.column", f"{column!r} is no column of whole numbers; these are: {listed}")
        count, low, high = (_whole(options, name) for name in SCAN_OPTIONS[1:-1])
        if count < 1 or low > high:
            raise options.error("scan.partition.num", "a scan has at least one part, and bounds in their order")
        cuts = [low + (high - low + 1) * at // count for at in range(count + 1)]
        parts = list(pairwise(cuts))
    url = check_url(jdbc_url(options), "connector 'jdbc'")
    fetched = options.number("scan.fetch-size", _FETCHED) or _FETCHED
    return JdbcSource(url, options.required("table-name"), row_type(options.table.schema), column, tuple(parts), fetched)


def _whole(options: TableOptions, name: str) -> int:
    try:
        return int(options.get(name) or "")
    except ValueError:
        raise options.error(name, f"option {name!r} is no whole number") from None


@dataclass(frozen=True)
class JdbcSource(Source[Any]):
    """``parts``: the values of ``column`` of each query, from the first one up to, but without, the second."""

    url: str = field(repr=False)
    table: str
    type: TypeInformation[Any]
    column: str | None
    parts: tuple[tuple[int, int], ...]
    fetched: int

    def output_type(self) -> TypeInformation[Any]:
        return self.type

    def projected(self, type: RecordType) -> JdbcSource:
        return replace(self, type=type)

    @property
    def bounded(self) -> bool:
        return True

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        return _Enumerator(0 if position is None else position["next"], len(self.parts), 1)

    def create_reader(self) -> SourceReader[Any]:
        return _Reader(self)


class _Enumerator(CounterEnumerator):
    """Counts queries. An epoch has one for each task."""

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        self._per_epoch = parallelism_hint
        return super().plan(max(max_rows, parallelism_hint), parallelism_hint)


class _Reader(SourceReader[Any]):
    def __init__(self, source: JdbcSource) -> None:
        self._source = source
        self._converter = RecordConverter(source.type)
        self._read = readings(source.type)

    def read(self, range: SplitRange) -> Iterator[pa.RecordBatch]:
        source, where = self._source, f"connector 'jdbc' reads {self._source.table} of {shown(self._source.url)}"
        with raising_errors(where), create_engine(source.url).connect() as connection:
            for low, high in source.parts[range.start : range.end]:
                streamed = connection.execution_options(stream_results=True, yield_per=source.fetched)
                for rows in streamed.execute(self._query(low, high)).mappings().partitions():
                    yield self._columns(list(map(dict, rows)), where)

    def _query(self, low: int, high: int) -> Any:
        import sqlalchemy as sa

        schema, _, name = self._source.table.rpartition(".")
        table = sa.table(name, *map(sa.column, self._source.type.column_names), schema=schema or None)
        query = sa.select(*table.c).select_from(table)
        if self._source.column is None:
            return query
        of = sa.column(self._source.column)  # which may not be read
        return query.where(of >= low, of < high)

    def _columns(self, rows: list[dict[str, Any]], where: str) -> pa.RecordBatch:
        for name, read in self._read.items():
            for row in rows:
                row[name] = read(row[name])
        found, problems = self._converter.convert(rows)
        if problems:
            at, problem = problems[0]
            raise RecordParseError(f"{where}: the row {rows[at]!r} is not one of the table in SQL: {problem}")
        assert isinstance(found, pa.RecordBatch)
        return found
