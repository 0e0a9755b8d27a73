"""Stages records until their epoch is committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.connectors.rows import pack_columns
from forkpoint.contract.sink import SinkBatch, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.errors import ConfigError
from forkpoint.types.variables import T_contra
from forkpoint_kinesis.committer import Target
from forkpoint_kinesis.errors import raising_errors
from forkpoint_kinesis.outgoing import SCHEMA


class StagingWriter(SinkWriter[T_contra], Generic[T_contra]):
    """Stages a subtask's records of an epoch. ``max_bytes``: the maximum size of a record with its key. ``key_length``: the
    maximum length of a key, in characters; 0 for no check."""

    def __init__(
        self,
        context: SinkContext,
        records: Callable[[SinkBatch[T_contra]], pa.RecordBatch],
        what: str,
        max_bytes: int,
        key_length: int = 0,
    ) -> None:
        self._context = context
        self._records = records
        self._what = what
        self._max_bytes = max_bytes
        self._key_length = key_length
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: SinkBatch[T_contra]) -> None:
        records = self._records(batch)
        if len(records):
            self._check(records)
            self._batches.append(records)

    def _check(self, records: pa.RecordBatch) -> None:
        """Raise before the commit if Kinesis would refuse a record."""
        keys, data = records.column("key"), records.column("data")
        if data.null_count:
            raise ConfigError(f"{self._what}: an element became no message; Kinesis has no records without data")
        if self._key_length:
            lengths = pc.fill_null(pc.utf8_length(keys), 0)
            bad = pc.or_(pc.equal(lengths, 0), pc.greater(lengths, self._key_length))
            if pc.any(bad).as_py():
                key = keys[pc.index(bad, True).as_py()].as_py()
                raise ConfigError(
                    f"{self._what}: the partition key {key!r} is empty or has more than {self._key_length} characters; correct "
                    "the function of set_partition_key_generator()"
                )
        sizes = pc.add(pc.fill_null(pc.binary_length(keys), 0), pc.binary_length(data))
        if (largest := pc.max(sizes).as_py()) > self._max_bytes:
            key = keys[pc.index(sizes, largest).as_py()].as_py()
            of = "" if key is None else f", with key {key!r},"
            raise ConfigError(
                f"{self._what}: a record of {largest} bytes{of} is larger than {self._max_bytes}; write smaller records, or call "
                "set_max_record_size_in_bytes() if the stream allows more"
            )

    def prepare_commit(self) -> list[JSON]:
        if not self._batches:
            return []
        return [{"subtask": self._context.subtask, "records": self._context.stage(pack_columns(self._batches, SCHEMA))}]


def checked(target: Target) -> None:
    """Raise a forkpoint error if the stream does not exist."""
    with raising_errors(target.what, target.place, target.remedy):
        target.check()
