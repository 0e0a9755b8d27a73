"""Reads ranges of Kafka partitions in a task."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

from forkpoint.connectors.formats.reading import FormatReader, OnParseError, Unread
from forkpoint.connectors.kafka.client import KafkaClient
from forkpoint.connectors.kafka.feed import Feed, keep_feed, open_feed
from forkpoint.connectors.kafka.offsets import KafkaTopicPartition
from forkpoint.connectors.kafka.records import KafkaRecordDeserializationSchema, KafkaRecords
from forkpoint.contract.source import Elements, SourceBatch, SplitRange
from forkpoint.types.variables import T

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
        if range.start >= range.end:
            return
        if self._feed is None:
            self._feed = open_feed(self._client)
        partition = KafkaTopicPartition.of_split(range.split)
        self._reading = True
        for messages in self._feed.messages(partition, range.start, range.end):
            records = KafkaRecords(messages)
            found = self._schema.deserialize_batch(records)
            yield from self._found(found, len(records), partial(_unread, records), records.timestamps)
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
