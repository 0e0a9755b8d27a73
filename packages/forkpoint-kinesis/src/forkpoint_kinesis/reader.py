"""Reads ranges of shards, in a task."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from forkpoint.connectors.formats.reading import FormatReader, OnParseError, Unread
from forkpoint.contract.source import Elements, SourceBatch, SplitRange
from forkpoint.errors import StorageError, SystemUnavailable
from forkpoint.types.variables import T
from forkpoint_kinesis.aggregated import parts
from forkpoint_kinesis.ahead import arrived_ms
from forkpoint_kinesis.client import connected
from forkpoint_kinesis.errors import forkpoint_error, is_expired, is_throttled
from forkpoint_kinesis.position import number
from forkpoint_kinesis.records import KinesisDeserializationSchema, KinesisRecord
from forkpoint_kinesis.requests import StreamRequests
from forkpoint_kinesis.watcher import Watch

log = logging.getLogger("forkpoint.kinesis")

_REMEDY = "Correct the format, or call set_on_parse_error('skip') on the builder to skip such records"

PATIENCE_S = 30.0  # with a service that does not answer or throttles requests, before the task fails
RETRY_S = 0.2
LONGEST_RETRY_S = 3.0
_MAX_EMPTY = 5  # empty responses at a shard's tip before its records count as lost


class KinesisReader(FormatReader[T]):
    """Reads exactly the planned records, or fails."""

    def __init__(self, watch: Watch, schema: KinesisDeserializationSchema[T], on_parse_error: OnParseError) -> None:
        super().__init__(on_parse_error, _REMEDY, log)
        self._watch = watch
        self._schema = schema

    def read(self, range: SplitRange) -> Iterator[Elements[T] | SourceBatch[T]]:
        if not range.rows:
            return
        requests = StreamRequests(connected(self._watch.client, "kinesis", self._watch.what), self._watch.stream)
        for records in self._records(requests, range):
            found = [r for record in records for r in self._parts(range, record)]
            times = np.fromiter((record.arrival_ms for record in found), np.int64, len(found))
            yield from self._found(self._schema.deserialize_batch(found), len(found), partial(self._unread, found), times)

    def _records(self, requests: StreamRequests, range: SplitRange) -> Iterator[Sequence[Any]]:
        """The raw records of a range. Raises StorageError if the service no longer has all of them."""
        assert range.rows
        left, at = range.rows, {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": range.start}
        tries = _Backoff(self._watch)
        iterator: str | None = None
        empty_left = _MAX_EMPTY
        while left:
            try:
                if iterator is None:
                    iterator = requests.iterator(range.split, at)
                answer = requests.records(iterator, min(self._watch.batch, left))
            except Exception as error:
                if is_expired(error):
                    iterator = None
                else:
                    tries.after(error)
                continue
            tries.succeeded()
            records = answer.records
            if records:
                if left == range.rows and records[0]["SequenceNumber"] != range.start:
                    raise self._loss_error(range, f"begins at {records[0]['SequenceNumber']}")
                yield records
                left -= len(records)
                last = records[-1]["SequenceNumber"]
                if left < 0 or (left == 0) != (last == range.end) or number(last) > number(range.end):
                    raise self._loss_error(range, f"ends at {last}")
                at = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": last}
            elif answer.next is None or (answer.behind_ms == 0 and (empty_left := empty_left - 1) == 0):
                raise self._loss_error(range, f"lacks {left} of them")
            elif answer.behind_ms == 0:
                time.sleep(RETRY_S)
            iterator = answer.next

    def _loss_error(self, range: SplitRange, problem: str) -> StorageError:
        return StorageError(
            f"{self._watch.what}, {range.split}: the {range.rows} records from {range.start} to {range.end} are incomplete: "
            f"the range {problem}. Records expired before the job read them: raise the stream's retention period "
            "(increase-stream-retention-period)"
        )

    def _parts(self, range: SplitRange, record: Any) -> Iterator[KinesisRecord]:
        """A record, or the records aggregated in it."""
        stream, sequence_number, arrival_ms = self._watch.stream.name, record["SequenceNumber"], arrived_ms(record)
        data = bytes(record["Data"])
        found = parts(data)
        if found is None:
            yield KinesisRecord(stream, range.split, sequence_number, 0, arrival_ms, record["PartitionKey"], data)
            return
        first, last = range.info or (0, 1 << 128)
        for index, part in enumerate(found):
            if first <= part.hash_key <= last:  # else the producer meant another shard and sent it there again
                yield KinesisRecord(stream, range.split, sequence_number, index, arrival_ms, part.partition_key, part.data)

    def _unread(self, records: Sequence[KinesisRecord], index: int) -> Unread:
        record = records[index]
        place = {
            "stream": record.stream,
            "shard": record.shard_id,
            "sequence_number": record.sequence_number,
            "sub_sequence_number": str(record.sub_sequence_number),
        }
        return Unread(
            f"{self._watch.what}, {record.shard_id}, sequence number {record.sequence_number}: cannot read the record",
            place,
            record.data,
            record.partition_key.encode(),
        )


class _Backoff:
    """Waits between failing requests, with increasing pauses."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.succeeded()

    def succeeded(self) -> None:
        self._pause_s, self._since_s = RETRY_S, time.monotonic()

    def after(self, error: Exception) -> None:
        """Wait, or raise the error as a forkpoint error."""
        trouble = forkpoint_error(error, self._watch.what, self._watch.client.place, self._watch.remedy)
        if not isinstance(trouble, SystemUnavailable) or time.monotonic() > self._since_s + PATIENCE_S:
            raise trouble from error
        if is_throttled(error):
            log.info("%s; trying again", trouble)
        time.sleep(self._pause_s * random.uniform(0.5, 1))
        self._pause_s = min(LONGEST_RETRY_S, 2 * self._pause_s)
