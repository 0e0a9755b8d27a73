"""Tables as bounded sources: the rows of one version of a table, file by file, in parallel.

The position names the version, so all epochs, and runs that go on from there, read the same rows, whatever is written meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from forkpoint.contract.source import JSON, Backlog, Source, SourceReader, SplitEnumerator, SplitRange
from forkpoint.errors import ConfigError, RecordParseError
from forkpoint.types import TypeInformation
from forkpoint.types.information import cast_exactly
from forkpoint.types.kinds.records import RecordType

_SPLIT = "files"


class VersionedTable(ABC):
    """A table whose versions stay. Shipped to tasks."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For messages."""

    @abstractmethod
    def newest(self) -> int | None:
        """The newest version; None of a table without rows so far. Raises ConfigError if there is no table."""

    @abstractmethod
    def columns(self, version: int) -> pa.Schema: ...

    @abstractmethod
    def files(self, version: int) -> Mapping[str, int]:
        """The paths of data files, with the number of rows of each."""

    @abstractmethod
    def rows(self, version: int, path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a data file, as the table has them."""


@dataclass(frozen=True)
class TableSource(Source[Any]):
    """``type``: of the rows, whose columns the table has. ``version``: None for the newest one when the job starts."""

    table: VersionedTable
    type: TypeInformation[Any]
    version: int | None = None

    def output_type(self) -> TypeInformation[Any]:
        return self.type

    def projected(self, type: RecordType) -> TableSource:
        return replace(self, type=type)

    @property
    def bounded(self) -> bool:
        return True

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        return _Enumerator(self, position)

    def create_reader(self) -> SourceReader[Any]:
        return _Reader(self)

    def check(self, version: int) -> None:
        """Raise ConfigError for columns that the table has not, or with other types."""
        present = self.table.columns(version)
        for field in self.type.arrow_schema:
            if field.name not in present.names:
                raise ConfigError(f"{self.table.name} has no column {field.name!r}; it has {', '.join(present.names)}")
            try:
                cast_exactly(pa.nulls(0, present.field(field.name).type), field.type)
            except pa.ArrowException as error:
                of = present.field(field.name).type
                raise ConfigError(
                    f"{self.table.name}: column {field.name!r} is {of}, which cannot be read as {field.type}: {error}"
                ) from error


class _Enumerator(SplitEnumerator):
    """Position: the version, the number of files that are planned, in the order of their paths, and of all files."""

    def __init__(self, source: TableSource, position: JSON | None) -> None:
        self._source = source
        self._version: int | None = None if position is None else position["version"]
        self._next: int = 0 if position is None else position["next"]
        self._count: int | None = None if position is None else position["count"]
        self._files: list[tuple[str, int]] | None = None

    def _all(self) -> list[tuple[str, int]]:
        if self._files is None:
            source = self._source
            if self._count is None:
                self._version = source.table.newest() if source.version is None else source.version
            if self._version is not None:
                source.check(self._version)
            self._files = [] if self._version is None else sorted(source.table.files(self._version).items())
            self._count = len(self._files)
        return self._files

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        if self.finished:
            return []
        ranges: list[SplitRange] = []
        planned = 0
        for path, rows in self._all()[self._next :]:
            if ranges and planned + rows > max_rows:
                break
            at = self._next
            ranges.append(SplitRange(_SPLIT, len(ranges), at, at + 1, rows, {"version": self._version, "path": path}))
            planned, self._next = planned + rows, at + 1
        return ranges

    def backlog(self) -> Backlog | None:
        return None if self._files is None else Backlog(sum(rows for _, rows in self._files[self._next :]))

    @property
    def position(self) -> JSON:
        return {"version": self._version, "next": self._next, "count": self._count}

    @property
    def finished(self) -> bool:
        return self._count is not None and self._next >= self._count


class _Reader(SourceReader[Any]):
    def __init__(self, source: TableSource) -> None:
        self._source = source

    def read(self, range: SplitRange) -> Iterator[pa.RecordBatch]:
        table, wanted = self._source.table, self._source.type.arrow_schema
        for batch in table.rows(range.info["version"], range.info["path"], wanted.names):
            columns = []
            for field in wanted:
                try:
                    columns.append(cast_exactly(batch.column(field.name), field.type))
                except pa.ArrowException as error:
                    raise RecordParseError(f"{table.name}, {range.info['path']}, column {field.name!r}: {error}") from None
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)
