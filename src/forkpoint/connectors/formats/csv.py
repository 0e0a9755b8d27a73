"""CSV: one line in each message, by PyFlink's names."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as pacsv

from forkpoint.connectors.formats.columns import is_utf8, typed_columns
from forkpoint.types import TypeInformation


def read_csv(
    data: bytes, rows: int | None, names: list[str], delimiter: str, type: TypeInformation, schema: pa.Schema
) -> pa.RecordBatch | None:
    """The columns of CSV, ``schema`` being the type's `text_schema`; None if `RecordConverter` could return something else.

    ``rows``: how many there must be; None if values may contain line ends.
    """
    if b"0x" in data or b"0X" in data or b"\0" in data or not is_utf8(data):  # Arrow reads hexadecimal numbers
        return None
    reading = pacsv.ReadOptions(use_threads=False, block_size=max(len(data) + 1, 1 << 16), column_names=names)
    parsing = pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=rows is None)
    conversion = pacsv.ConvertOptions(
        column_types=schema, include_columns=schema.names, null_values=[""], strings_can_be_null=False
    )
    try:
        table = pacsv.read_csv(pa.BufferReader(data), reading, parsing, conversion)
    except (pa.ArrowException, KeyError):
        return None
    if rows is not None and len(table) != rows:  # blank lines, or records that span lines
        return None
    return typed_columns(table, type)
