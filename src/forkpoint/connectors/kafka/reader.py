"""Reads ranges of Kafka partitions in a task."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from forkpoint.connectors.formats.reading import FormatReader, OnParseError, Unread
from forkpoint.connectors.kafka.client import KafkaClient
from forkpoint.connectors.kafka.feed import Feed, keep_feed, open_feed
from forkpoint.connectors.kafka.offsets import KafkaTopicPartition
from forkpoint.connectors.kafka.records import KafkaRecordDeserializationSchema, KafkaRecords, ValueOnly
from forkpoint.contract.format import Deserialized
from forkpoint.contract.source import Elements, SourceBatch, SplitRange
from forkpoint.types.variables import T

if TYPE_CHECKING:
    from confluent_kafka import Message

log = logging.getLogger("forkpoint.kafka")

_REMEDY = "Correct the format, or call set_on_parse_error('skip') on the builder to skip such records"


class KafkaReader(FormatReader[T]):
    """Reads ranges from a feed, which it keeps for this process's next reader unless it fails."""

    def __init__(self, client: KafkaClient, schema: KafkaRecordDeserializationSchema[T], on_parse_error: OnParseError) -> None:
        super().__init__(on_parse_error, _REMEDY, log)
        self._client = client
        self._schema = schema
        self._feed: Feed | None = None
        self._reading = False

    def read(self, range: SplitRange) -> Iterator[Elements[T] | SourceBatch[T]]:
        for messages in self._messages(range):
            records = KafkaRecords(messages)
            yield from self._of(records, self._schema.deserialize_batch(records))

    def read_together(
        self, ranges: Sequence[SplitRange]
    ) -> Iterator[tuple[Sequence[tuple[SplitRange, int]], Elements[T] | SourceBatch[T]]]:
        if len(ranges) == 1 or not isinstance(self._schema, ValueOnly):  # others see the records' partitions
            yield from super().read_together(ranges)
            return
        messages = [list(chain.from_iterable(self._messages(range))) for range in ranges]
        together = KafkaRecords(list(chain.from_iterable(messages)))
        found = self._schema.deserialize_batch(together)
        if found.indices is None and not found.bad:
            sizes = map(len, messages)
            for run in self._of(together, found):
                yield list(zip(ranges, sizes, strict=True)), run
            return
        for range, records in zip(ranges, map(KafkaRecords, messages), strict=True):
            for run in self._of(records, self._schema.deserialize_batch(records)):
                yield [(range, len(run.elements if isinstance(run, SourceBatch) else run))], run

    def _of(self, records: KafkaRecords, found: Deserialized[T]) -> Iterator[Elements[T] | SourceBatch[T]]:
        return self._found(found, len(records), partial(_unread, records), records.timestamps)

    def _messages(self, range: SplitRange) -> Iterator[list[Message]]:
        if range.start >= range.end:
            return
        if self._feed is None:
            self._feed = open_feed(self._client)
        self._reading = True
        yield from self._feed.messages(KafkaTopicPartition.of_split(range.split), range.start, range.end)
        self._reading = False

    def close(self) -> None:
        feed, self._feed = self._feed, None
        if feed is None:
            return
        if self._reading:  # it failed in the middle of a range
            feed.close()
        else:
            keep_feed(feed)


def _unread(records: KafkaRecords, index: int) -> Unread:
    record = records[index]
    return Unread(
        f"KafkaSource: topic {record.topic!r}, partition {record.partition}, offset {record.offset}: cannot read the record",
        {"topic": record.topic, "partition": str(record.partition), "offset": str(record.offset)},
        record.value,
        record.key,
    )
