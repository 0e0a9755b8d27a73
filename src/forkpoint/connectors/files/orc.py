"""Rows of ORC files. One task reads a file, stripe by stripe: its footer, as Arrow shows it, does not say where rows begin.

Times have nanoseconds in Arrow's ORC, as far as they fit 64 bits: from 1677 to 2262.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forkpoint.connectors.files.formats import FileFormat, FileIndex, FileStart, WholeIndex
from forkpoint.connectors.files.places import MUST_BE_COMPLETE, SourceFile
from forkpoint.errors import ConfigError, RecordParseError
from forkpoint.types import TypeInformation

if TYPE_CHECKING:
    from pyarrow import orc

_BATCH = 64 * 1024


@dataclass(frozen=True)
class OrcFormat(FileFormat):
    unit = "row"

    def start(self, file: SourceFile, size: int) -> FileStart:
        return FileStart(0, 0)

    def index(self, file: SourceFile, at: int, size: int) -> FileIndex:
        with file.for_parquet(size) as opened:
            return WholeRows(at, _opened(file, opened).nrows if size else 0)


@dataclass(frozen=True)
class WholeRows(WholeIndex):
    """The rows of a file, whose number is known."""

    def take(self, max_rows: int) -> tuple[int, int]:
        return self.end, self.end - self.start


class OrcCursor:
    """An open ORC file, which is read once."""

    def __init__(self, file: SourceFile, size: int, type: TypeInformation | None) -> None:
        self.path, self.size = str(file), size
        file.check(size, exact=True)
        with file.for_parquet(size) as opened:
            self._file = _opened(file, opened)
        names = self._file.schema.names
        # Arrow returns no rows for no columns.
        self._columns = names if type is None else [name for name in names if name in type.column_names] or names[:1]

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for number in range(self._file.nstripes):
            try:
                stripe = self._file.read_stripe(number, columns=self._columns)
            except (pa.ArrowException, OSError) as error:
                raise RecordParseError(f"{self.path}, stripe {number}: damaged ORC data ({error})") from None
            found = as_times(stripe, "us")
            for at in range(0, found.num_rows, _BATCH):
                yield found.slice(at, _BATCH)

    def close(self) -> None:
        """Arrow closes the file."""


def _opened(file: SourceFile, opened: Any) -> orc.ORCFile:
    from pyarrow import orc

    try:
        return orc.ORCFile(str(opened) if hasattr(opened, "__fspath__") else opened)
    except (pa.ArrowException, OSError) as error:
        raise RecordParseError(
            f"{file}: not a readable ORC file ({error}). Remove it or write it again; {MUST_BE_COMPLETE}"
        ) from None


def as_times(columns: pa.RecordBatch, unit: str) -> pa.RecordBatch:
    """Columns with all times in a unit, also those in lists and the like. Raises ArrowInvalid if one does not fit."""
    wanted = pa.schema([pa.field(each.name, in_unit(each.type, unit), each.nullable) for each in columns.schema])
    return pa.RecordBatch.from_arrays([c.cast(t) for c, t in zip(columns.columns, wanted.types, strict=True)], schema=wanted)


def in_unit(of: pa.DataType, unit: str) -> pa.DataType:
    """A type whose times have this unit."""

    def part(field: pa.Field) -> pa.Field:
        return field.with_type(in_unit(field.type, unit))

    kinds: list[tuple[Callable[[pa.DataType], bool], Callable[[], pa.DataType]]] = [
        (pa.types.is_timestamp, lambda: pa.timestamp(unit, of.tz)),
        (pa.types.is_list, lambda: pa.list_(part(of.value_field))),
        (pa.types.is_map, lambda: pa.map_(part(of.key_field), part(of.item_field))),
        (pa.types.is_struct, lambda: pa.struct([part(of.field(at)) for at in range(of.num_fields)])),
    ]
    return next((make() for is_kind, make in kinds if is_kind(of)), of)


def check_orc(what: str, of: pa.DataType | pa.Schema) -> None:
    """Raise ConfigError for columns that ORC has no type for: times of day, durations."""
    for field in of if isinstance(of, pa.Schema) else [of.field(at) for at in range(of.num_fields)]:
        if pa.types.is_time(field.type) or pa.types.is_duration(field.type):
            raise ConfigError(f"{what}: ORC has no type for {field.name!r} ({field.type}); write it as text or as a number")
        if pa.types.is_nested(field.type):
            check_orc(f"{what}, {field.name!r}", field.type)
