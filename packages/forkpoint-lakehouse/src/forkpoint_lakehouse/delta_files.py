"""Data files of a Delta table: paths, partitions and statistics."""

from __future__ import annotations

import io
import json
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forkpoint.contract.source import JSON
from forkpoint.errors import ConfigError
from forkpoint.storage.base import sync_directory
from forkpoint_lakehouse.delta_errors import raising_errors
from forkpoint_lakehouse.format import DataFiles
from forkpoint_lakehouse.partitions import divide

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_NULL_TEXTS = ["", NULL_PARTITION]
"""Texts that mean null in partition columns: Delta's protocol writes "", and readers and writers also accept the other."""

_STATISTICS_COLUMNS = 32  # like other writers
_MAX_TEXT = 256  # characters of a text in statistics
_SAFE = " ,+@()"


def absolute(uri: str) -> str:
    """A table's URI, independent of the working directory: makes a path absolute."""
    if uri.startswith("file:"):
        return unquote(urlsplit(uri).path)
    return uri.rstrip("/") if "://" in uri else os.path.abspath(os.path.expanduser(uri))


# Options that only delta-rs knows.
_LOG_OPTIONS = re.compile(r"max_retries|retry_timeout|backoff_config\..*|.*unsafe_rename|.*locking_provider|.*dynamo.*|delta_.*")
_CONCURRENCY = 8  # requests


class DeltaPlace:
    """The files below a table's directory."""

    def __init__(self, uri: str, storage_options: Mapping[str, str]) -> None:
        self._root = None if "://" in uri else Path(uri)
        options = {key.lower().replace("aws_allow_http", "allow_http"): value for key, value in storage_options.items()}
        config = {key: value for key, value in options.items() if not _LOG_OPTIONS.fullmatch(key)}
        self._uri, self._config = uri.replace("s3a://", "s3://", 1), config

    @cached_property
    def _store(self) -> Any:
        # delta-rs's own file system holds the GIL while it waits for the store.
        from forkpoint.storage.object_storage import ObjectStorage

        return ObjectStorage(self._uri, self._config)

    def put(self, path: str, data: bytes) -> None:
        """Write a new file, durably."""
        if self._root is None:
            self._store.put(path, data)
            return
        file = self._root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        for directory in (file.parent, *file.parent.parents):
            if directory.is_relative_to(self._root):
                sync_directory(directory)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, if they exist."""
        if self._root is None:
            self._store.delete_all(list(paths))
            return
        for path in paths:
            (self._root / path).unlink(missing_ok=True)

    def missing(self, paths: Sequence[str]) -> list[str]:
        """The files that do not exist."""
        if self._root is not None:
            return [path for path in paths if not (self._root / path).exists()]
        with ThreadPoolExecutor(_CONCURRENCY) as pool:
            there = pool.map(self._store.exists, paths)
            return [path for path, exists in zip(paths, there, strict=True) if not exists]


class DeltaFiles(DataFiles):
    """Writes data files of a table with these columns and partition columns."""

    def __init__(self, name: str, place: DeltaPlace, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        self._name = name
        self._place = place
        self._schema = schema
        self._partition_by = list(partition_by)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def plan(self, rows: pa.Table, name: str) -> Sequence[tuple[str, Any]]:
        planned = []
        for number, (values, part) in enumerate(divide(rows, self._partition_by)):
            texts = {column: partition_text(value) for column, value in values.items()}
            directories = [f"{quote(column, safe=_SAFE)}={_directory(text)}/" for column, text in texts.items()]
            planned.append((f"{''.join(directories)}part-{name}-{number}.zstd.parquet", (texts, part)))
        return planned

    def check(self, rows: pa.Table) -> None:
        for column in self._partition_by:
            if column not in rows.column_names or not pa.types.is_string(rows.schema.field(column).type):
                continue
            for text in pc.unique(
                pc.filter(rows.column(column), pc.is_in(rows.column(column), pa.array(_NULL_TEXTS)))
            ).to_pylist():
                raise ConfigError(
                    f"{self._name}: an element has {text!r} in the partition column {column!r}, where Delta Lake reads that as "
                    "null; map it to another text or to None, filter such elements out, or partition a new table by another "
                    "column"
                )

    def write(self, path: str, part: Any) -> dict[str, JSON]:
        texts, rows = part
        buffer = io.BytesIO()
        pq.write_table(rows, buffer, compression="zstd")
        with raising_errors(self._name):
            self._place.put(path, buffer.getvalue())
        return {
            "path": path,
            "size": buffer.getbuffer().nbytes,
            "rows": len(rows),
            "partition": texts,
            "written_ms": time.time_ns() // 1_000_000,
            "stats": statistics(rows),
        }

    def remove(self, paths: Iterable[str]) -> None:
        self._place.remove(paths)


def _directory(text: str | None) -> str:
    return NULL_PARTITION if text is None else quote(text, safe=_SAFE)


def partition_text(value: Any) -> str | None:
    """A partition value in the form of Delta's protocol."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        shown = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return shown.isoformat(" ", "microseconds")
    if isinstance(value, bytes):
        raise ConfigError("a Delta table cannot be partitioned by a column of bytes; choose another in partition_by=")
    return str(value)


def statistics(rows: pa.Table) -> str:
    """A file's column statistics in a Delta table's log, as JSON. Readers use them to skip files."""
    lowest, highest, nulls = {}, {}, {}
    for name in rows.column_names[:_STATISTICS_COLUMNS]:
        column = rows.column(name)
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            continue
        nulls[name] = column.null_count
        if column.null_count == len(column):
            continue
        bounds = pc.min_max(column).as_py()
        low, high = _bound(bounds["min"]), _bound(bounds["max"])
        if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
            continue  # NaN sorts above all values, and JSON cannot represent it
        if low is not None and high is not None:
            lowest[name], highest[name] = low, high
    return json.dumps({"numRecords": len(rows), "minValues": lowest, "maxValues": highest, "nullCount": nulls})


def _bound(value: Any) -> Any:
    """A bound in statistics; None to leave it out."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return None  # JSON's numbers would be rounded
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return None if isinstance(value, str) and len(value) > _MAX_TEXT else value
