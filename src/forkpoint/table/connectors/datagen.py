"""Generated rows. A row's values depend on its number only, so an epoch that is repeated has the same rows; random times are
before the epoch's processing time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.connectors.counter import CounterEnumerator
from forkpoint.contract.source import JSON, ReaderContext, Source, SourceReader, SplitEnumerator, SplitRange
from forkpoint.relational.changes import row_type
from forkpoint.relational.functions.decimals import rescaled
from forkpoint.relational.types import INTEGERS, NUMBERS, TIMES, Field, SqlType, digits_of
from forkpoint.table.connectors.options import TableOptions
from forkpoint.types import TypeInformation
from forkpoint.wording import parse_duration_ms

_ROWS_PER_SECOND, _LENGTH = 10_000, 100
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_LARGEST = {"FLOAT": float(np.finfo(np.float32).max), "DOUBLE": sys.float_info.max}
_REAL = ("FLOAT", "DOUBLE", "DECIMAL")
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Generated:
    """A generated column. ``start``: of a sequence. ``low``, ``high``: of random numbers. ``length``: of texts. ``past_ms``: how
    long ago random times are, at most."""

    field: Field
    start: int | None
    low: Any
    high: Any
    length: int
    past_ms: int
    null_rate: float

    def values(self, rows: Numbers, now_ms: int) -> pa.Array:
        """The values of the rows with these numbers."""
        if self.start is not None:
            sequence, of = pa.array(rows + self.start), self.field.type.arrow_type
            return rescaled(sequence, of) if pa.types.is_decimal(of) else sequence.cast(of)
        words = mixed(rows.astype(np.uint64) + mixed(np.array([crc32(self.field.name.encode())], np.uint64)))
        found = self._random(words, now_ms).cast(self.field.type.arrow_type, safe=False)
        if not self.null_rate:
            return found
        return pc.if_else(pa.array(_fractions(mixed(words)) < self.null_rate), pa.scalar(None, found.type), found)

    def _random(self, words: Words, now_ms: int) -> pa.Array:
        name = self.field.type.name
        if name == "BOOLEAN":
            return pa.array((words & np.uint64(1)).astype(bool))
        if name in INTEGERS:
            span = self.high - self.low + 1
            within = words if span == 2**64 else words % np.uint64(span)
            return pa.array((within + np.uint64(self.low % 2**64)).view(np.int64))
        if name in _REAL:
            part = _fractions(words)
            return pa.array(self.low * (1 - part) + self.high * part)
        if name in TIMES:
            back = (_fractions(words) * self.past_ms).astype(np.int64)
            return pa.array((now_ms - back) * 1000).cast(pa.timestamp("us"))
        return _texts(words, self.length)


def mixed(words: Any) -> Words:
    """splitmix64's output: words that are spread evenly."""
    with np.errstate(over="ignore"):
        words = words + np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Words = words ^ (words >> np.uint64(31))
    return found


def _fractions(words: Words) -> npt.NDArray[np.float64]:
    """Numbers from 0 to 1, without 1."""
    return (words >> np.uint64(11)) / np.float64(2**53)


def _texts(words: Words, length: int) -> pa.Array:
    """Texts of hexadecimal digits."""
    count = max(1, -(-length // 16))
    more = mixed(words[:, None] + np.arange(count, dtype=np.uint64))
    octets = more.view(np.uint8).reshape(len(words), count * 8)
    digits = _HEX[np.stack([octets >> 4, octets & 15], axis=-1).reshape(len(words), count * 16)[:, :length]]
    offsets = np.arange(0, (len(words) + 1) * length, max(length, 1), dtype=np.int32)[: len(words) + 1]
    if not length:
        offsets = np.zeros(len(words) + 1, np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(words), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digits))]
    )


def datagen_source(options: TableOptions) -> Source[Any]:
    options.unneeded({"scan.parallelism": "SET 'parallelism.default' sets the job's"})
    rate = options.number("rows-per-second", _ROWS_PER_SECOND) or 1
    columns = [_generated(options, field) for field in options.table.schema]
    ends = [end for _, end in columns if end is not None]
    rows = options.number("number-of-rows")
    stop = min([*ends, *([] if rows is None else [rows])], default=None)
    return DatagenSource(tuple(column for column, _ in columns), row_type(options.table.schema), rate, stop)


def _generated(options: TableOptions, field: Field) -> tuple[Generated, int | None]:
    """A column, and the number of its rows if it is a sequence."""
    name, of = field.name, field.type.name
    if of not in (*NUMBERS, *TIMES, "BOOLEAN", "STRING", "BYTES"):
        raise options.error("", f"connector 'datagen' makes no {of}, the type of column {name!r}")
    prefix = f"fields.{name}"
    if options.choice(f"{prefix}.kind", ("random", "sequence"), "random") == "sequence":
        if of not in (*NUMBERS, "STRING"):
            raise options.error(f"{prefix}.kind", f"a sequence is of numbers or STRING, but column {name!r} is {of}")
        start, end = (_number(options, f"{prefix}.{each}", int, None) for each in ("start", "end"))
        if start is None or end is None or end < start:
            raise options.error(f"{prefix}.kind", f"a sequence needs '{prefix}.start', and '{prefix}.end' of at least that")
        return Generated(field, start, None, None, 0, 0, 0.0), end - start + 1
    low = high = None
    if of in NUMBERS:
        kind = int if of in INTEGERS else float
        most = 2 ** (_BITS[of] - 1) - 1 if of in _BITS else _largest(field.type)
        least = -most - 1 if of in _BITS else -most
        low, high = _number(options, f"{prefix}.min", kind, least), _number(options, f"{prefix}.max", kind, most)
        if not least <= low <= high <= most:
            raise options.error(f"{prefix}.max", f"column {name!r}: min {low} and max {high} are no range of {of}")
    length = _LENGTH
    if of in ("STRING", "BYTES"):
        length = options.number(f"{prefix}.length", _LENGTH) or 0
    past = options.get(f"{prefix}.max-past", "0 ms") if of in TIMES else None
    null_rate = _number(options, f"{prefix}.null-rate", float, 0.0)
    if not 0 <= null_rate <= 1 or (null_rate and not field.type.nullable):
        raise options.error(f"{prefix}.null-rate", f"column {name!r}: the rate is from 0 to 1, and 0 for NOT NULL")
    return Generated(field, None, low, high, length, parse_duration_ms(f"{prefix}.max-past", past or "0 ms"), null_rate), None


def _largest(of: SqlType) -> float:
    if of.name != "DECIMAL":
        return _LARGEST[of.name]
    precision, scale = digits_of(of)
    return float(np.nextafter(float(Decimal(10) ** (precision - scale) - Decimal(1).scaleb(-scale)), 0.0))


def _number(options: TableOptions, name: str, kind: type[Any], default: Any) -> Any:
    value = options.get(name)
    try:
        return default if value is None else kind(value)
    except ValueError:
        raise options.error(name, f"option {name!r} is no {'whole number' if kind is int else 'number'}") from None


@dataclass(frozen=True)
class DatagenSource(Source[Any]):
    """``rate``: rows per second. ``stop``: the number of rows; None for no end."""

    columns: tuple[Generated, ...]
    type: TypeInformation[Any]
    rate: int
    stop: int | None

    def output_type(self) -> TypeInformation[Any]:
        return self.type

    @property
    def bounded(self) -> bool:
        return self.stop is not None

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        return _Enumerator(0 if position is None else position["next"], self.stop, self.rate)

    def create_reader(self) -> SourceReader[Any]:
        return _Reader(self)


class _Enumerator(CounterEnumerator):
    """Plans the rows that are due since it was created."""

    def __init__(self, first: int, stop: int | None, rate: int) -> None:
        super().__init__(first, stop, rate)
        self._rate, self._first, self._began = rate, first, time.monotonic()

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        due = self._first + int((time.monotonic() - self._began) * self._rate) + 1
        return super().plan(max(0, min(max_rows, due - self.position["next"])), parallelism_hint)


class _Reader(SourceReader[Any]):
    def __init__(self, source: DatagenSource) -> None:
        self._source = source
        self._now_ms = 0

    def open(self, context: ReaderContext) -> None:
        self._now_ms = context.processing_time_ms

    def read(self, range: SplitRange) -> Iterator[pa.RecordBatch]:
        rows = np.arange(range.start, range.end, dtype=np.int64)
        columns = [column.values(rows, self._now_ms) for column in self._source.columns]
        yield pa.RecordBatch.from_arrays(columns, schema=self._source.type.arrow_schema)
