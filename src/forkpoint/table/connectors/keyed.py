"""Tables of stores that find a row by its key, as packages have them: the key is a text, the row JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.connectors.formats.changes import changed_row
from forkpoint.connectors.formats.json import JsonRowSerializationSchema
from forkpoint.contract.sink import SinkBatch
from forkpoint.relational.changes import changed_rows, row_type, weights_of, without_weights
from forkpoint.relational.types import NESTED
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.table.connectors.batches import Columns
from forkpoint.table.connectors.formats import timestamp_format
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.printing import short_floats, text_of
from forkpoint.types.kinds.records import RecordType

_WITHOUT_TEXT = ("BYTES", *NESTED)


def changes_by_key(options: TableOptions) -> str:
    """The changes that a table takes (``Connector.takes``): with a primary key the current row of each."""
    return "upserts" if options.table.primary_key else "added"


@dataclass(frozen=True)
class KeyTexts:
    """The texts of keys of this type: their values as Flink has them, joined by the delimiter. In keys of several columns, the
    delimiter and a backslash in a value have a backslash before them, so that different keys have different texts."""

    key: RecordType
    delimiter: str

    @staticmethod
    def of(options: TableOptions, option: str, default: str) -> KeyTexts:
        """For a table's primary key. ``option``: the one that gives the delimiter. Raises SqlError."""
        fields = {field.name: field for field in options.table.schema}
        key = tuple(fields[name] for name in options.table.primary_key)
        for field in key:
            if field.type.name in _WITHOUT_TEXT:
                problem = f"column {field.name!r} of the primary key is {field.type.label}, which has no text; make it STRING"
                raise options.error("", problem)
        delimiter = options.get(option) or default
        if delimiter.startswith("\\"):
            raise options.error(
                option, f"option {option!r} begins with a backslash, which marks delimiters in values; use another"
            )
        return KeyTexts(row_type(key), delimiter)

    def __call__(self, keys: Iterable[Sequence[Any]]) -> Iterator[str]:
        for key in keys:
            texts = map(text_of, short_floats(key, self.key))
            yield next(texts) if len(self.key.members) == 1 else self.delimiter.join(map(self._marked, texts))

    def _marked(self, text: str) -> str:
        return text.replace("\\", "\\\\").replace(self.delimiter[0], "\\" + self.delimiter[0])


@dataclass(frozen=True)
class KeyedDocuments:
    """What is written into a table: the text of each row's key (None in a table without a primary key), and the row in JSON, or
    None if it is removed."""

    row: RecordType
    keys: KeyTexts
    format: JsonRowSerializationSchema[Any]

    @staticmethod
    def of(options: TableOptions, keys: KeyTexts) -> KeyedDocuments:
        row = row_type(options.table.schema)
        return KeyedDocuments(row, keys, JsonRowSerializationSchema(row, timestamp_format(options)))

    def __call__(self, batch: SinkBatch[Any]) -> Iterator[tuple[str | None, bytes | None]]:
        table, weights = columns_of(batch, batch.type), None
        if changed_row(batch.type) is not None:
            kinds = table.column("kind").to_numpy(zero_copy_only=False)
            changed, _ = changed_rows(kinds, table.column("before"), table.column("after"))
            table, weights = without_weights(changed), weights_of(changed)
        added = np.ones(len(table), bool) if weights is None else weights > 0
        rows = table.filter(pa.array(added))
        documents = iter(self.format.serialize_batch(_columns(rows, self.row)).to_pylist())
        for text, is_added in zip(self._texts(table), added.tolist(), strict=False):
            yield text, next(documents) if is_added else None

    def _texts(self, table: pa.RecordBatch) -> Iterator[str | None]:
        key = self.keys.key
        return self.keys(_columns(table.select(list(key.names)), key).values) if key.members else repeat(None)


def _columns(table: pa.RecordBatch, of: RecordType) -> Columns:
    return Columns(pa.RecordBatch.from_arrays(table.columns, schema=of.arrow_schema), of)
