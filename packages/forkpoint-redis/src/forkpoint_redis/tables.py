"""Tables of SQL with ``'connector' = 'redis'``: a hash for each row, by the primary key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from forkpoint.connectors.formats.json import JsonRowDeserializationSchema
from forkpoint.connectors.rows import RowsWriter, StagedRow
from forkpoint.contract.sink import SinkBatch, SinkContext, SinkWriter
from forkpoint.decoders import json_decoder
from forkpoint.errors import ConfigError, JobFailed
from forkpoint.functions import LookupFunction, RuntimeContext
from forkpoint.relational.changes import row_type
from forkpoint.relational.lookups import LookupTable
from forkpoint.relational.types import NESTED, NUMBERS
from forkpoint.table.connectors.jdbc import LOOKUP_OPTIONS
from forkpoint.table.connectors.keyed import KeyedDocuments, KeyTexts
from forkpoint.table.connectors.lookups import lookup_table
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.registry import Connector
from forkpoint.types import TypeInformation, Types
from forkpoint.types.kinds.records import RecordType
from forkpoint_redis.client import RedisClient, raising_errors
from forkpoint_redis.commands import encode
from forkpoint_redis.sink import RedisSink, names_of

_encode = msgspec.json.encode
_fields, _check, _text = json_decoder(dict[str, msgspec.Raw]), json_decoder(msgspec.Raw), json_decoder(str)
_WITHOUT_QUOTES = ("BOOLEAN", *NUMBERS, *NESTED)


@dataclass(frozen=True)
class Hashes:
    """The names of rows' hashes: a prefix and the text of the key."""

    prefix: str
    keys: KeyTexts

    @staticmethod
    def of(options: TableOptions) -> Hashes:
        keys = KeyTexts.of(options, "key-delimiter", ":")
        return Hashes(options.get("key-prefix", f"{options.table.name}:") or "", keys)


@dataclass(frozen=True)
class HashEncoder:
    """Staged commands of rows: a field for each column that is not NULL, with its value in JSON, texts without quotes."""

    hashes: Hashes
    rows: KeyedDocuments

    def __call__(self, batch: SinkBatch[Any]) -> Iterator[StagedRow]:
        for key, document in self.rows(batch):
            name = f"{self.hashes.prefix}{key}"
            if document is None:
                yield encode(("DEL", name))
                continue
            fields = {column: _value(bytes(value)) for column, value in _fields(document).items()}
            yield encode(("HSET", name, *(part for each in fields.items() if each[1] is not None for part in each)))
            if nulls := [column for column, value in fields.items() if value is None]:
                yield encode(("HDEL", name, *nulls))


def _value(text: bytes) -> bytes | None:
    if text == b"null":
        return None
    return _text(text).encode() if text.startswith(b'"') else text


class RedisTableSink(RedisSink[Any]):
    """``encoder``: in place of a function of an element."""

    def __init__(self, client: RedisClient, encoder: Callable[[SinkBatch[Any]], Any], replicas: int) -> None:
        super().__init__(client.url, encoder, options=client.options, replicas=replicas)
        self._encoder = encoder

    def create_writer(self, context: SinkContext) -> SinkWriter[Any]:
        return RowsWriter(context, self._encoder, names_of)


class RedisLookup(LookupFunction[Any, Any]):
    """Finds the row of a key. ``columns``: those that are looked up, among them the primary key; a row with other values in the
    others is none of the key's."""

    def __init__(self, client: RedisClient, hashes: Hashes, columns: tuple[str, ...], row: RecordType, texts: set[str]) -> None:
        self._settings, self._hashes, self._columns, self._row, self._texts = client, hashes, columns, row, texts
        self._client: Any = None

    def get_produced_type(self) -> TypeInformation[Any]:
        return Types.LIST(self._row)

    def open(self, runtime_context: RuntimeContext, /) -> None:
        self._client = self._settings.connect()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    @cached_property
    def _format(self) -> JsonRowDeserializationSchema[Any]:
        return JsonRowDeserializationSchema(self._row)

    def lookup(self, keys: Sequence[Any], /) -> Mapping[Any, Any]:
        given = [dict(zip(self._columns, key if len(self._columns) > 1 else (key,), strict=True)) for key in keys]
        texts = self._hashes.keys([each[name] for name in self._hashes.keys.key.names] for each in given)
        names = [self._hashes.prefix + text for text in texts]
        with raising_errors(f"Redis at {self._settings.place}"):
            pipeline = self._client.pipeline(transaction=False)
            for name in names:
                pipeline.hgetall(name)
            hashes = pipeline.execute()
        found = [at for at, fields in enumerate(hashes) if fields]
        rows = self._rows([names[at] for at in found], [hashes[at] for at in found])
        same = (all(row[name] == value for name, value in given[at].items()) for at, row in zip(found, rows, strict=True))
        return {keys[at]: [row] for at, row, fits in zip(found, rows, same, strict=True) if fits}

    def _rows(self, names: Sequence[str], hashes: Sequence[Mapping[bytes, bytes]]) -> Sequence[Any]:
        documents = [b"{%s}" % b",".join(self._members(fields)) for fields in hashes]
        read = self._format.deserialize_batch(pa.array(documents, pa.binary()))
        for bad in read.bad:
            raise JobFailed(
                f"Redis at {self._settings.place}: the hash {names[bad.index]!r} is no row of the table: {bad.problem}. Correct "
                "it, or the table's columns"
            )
        elements = read.elements
        return self._row.from_columns(elements.columns) if isinstance(elements, pa.RecordBatch) else elements

    def _members(self, fields: Mapping[bytes, bytes]) -> Iterator[bytes]:
        """The members of the object in JSON whose values these fields have."""
        for column in self._row.names:
            value = fields.get(column.encode())
            if value is not None:
                text = value if column not in self._texts and _is_json(value) else _encode(value.decode(errors="replace"))
                yield _encode(column) + b":" + text


def _is_json(text: bytes) -> bool:
    """False for numbers that are not finite, which JSON has as texts, and for what others have written."""
    try:
        _check(text)
    except msgspec.DecodeError:
        return False
    return True


def _client(options: TableOptions) -> RedisClient:
    given = {name: options.get(name) for name in ("username", "password")}
    client = RedisClient(options.required("url"), {name: value for name, value in given.items() if value is not None})
    try:
        client.connect().close()
    except ConfigError:
        raise options.error("url", "option 'url' is no URL of Redis; one looks like redis://host:6379/0") from None
    return client


def _sink(options: TableOptions) -> RedisTableSink:
    hashes = Hashes.of(options)
    options.ignore(*LOOKUP_OPTIONS)
    encoder = HashEncoder(hashes, KeyedDocuments.of(options, hashes.keys))
    return RedisTableSink(_client(options), encoder, options.number("replicas", 0) or 0)


def _lookup(options: TableOptions, columns: tuple[str, ...]) -> LookupTable:
    table = options.table
    missing = set(table.primary_key).difference(columns)
    if missing or not table.primary_key:
        lacks = f"the join lacks {', '.join(sorted(missing))}" if missing else "it has none"
        raise options.error("", f"rows of table {table.name!r} are found by its primary key; {lacks}")
    options.ignore("replicas", "json.timestamp-format.standard")
    texts = {field.name for field in table.schema if field.type.name not in _WITHOUT_QUOTES}
    function = RedisLookup(_client(options), Hashes.of(options), columns, row_type(table.schema), texts)
    return lookup_table(options, function)


CONNECTOR = Connector(None, _sink, "upserts", as_changes=True, keyed=True, lookup=_lookup)
