"""Reads ranges of Kafka partitions, in a task."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from forkpoint.connectors.base import Elements, SourceReader, SplitRange
from forkpoint.connectors.building import OnParseError
from forkpoint.connectors.formats.base import BadMessage
from forkpoint.connectors.kafka.client import KafkaClient
from forkpoint.connectors.kafka.feed import Feed, keep_feed, open_feed
from forkpoint.connectors.kafka.offsets import KafkaTopicPartition
from forkpoint.connectors.kafka.records import KafkaRecordDeserializationSchema, KafkaRecords
from forkpoint.errors import RecordParseError
from forkpoint.types.variables import T

log = logging.getLogger("forkpoint.kafka")


class KafkaReader(SourceReader[T]):
    """A feed that has read all that it was asked for is kept for the next reader of this process."""

    def __init__(
        self, client: KafkaClient, schema: KafkaRecordDeserializationSchema[T], on_parse_error: OnParseError
    ) -> None:
        self._client = client
        self._schema = schema
        self._fails = on_parse_error == "fail"
        self._feed: Feed | None = None
        self._reading = False

    def read(self, range: SplitRange) -> Iterator[Elements[T]]:
        if range.start >= range.end:
            return
        if self._feed is None:
            self._feed = open_feed(self._client)
        partition = KafkaTopicPartition.of_split(range.split)
        self._reading = True
        for messages in self._feed.messages(partition, range.start, range.end):
            records = KafkaRecords(messages)
            deserialized = self._schema.deserialize_batch(records)
            for bad in deserialized.bad:
                self._refuse(partition, records.offset(bad.index), bad)
            if len(deserialized.elements):
                yield deserialized.elements
        self._reading = False

    def _refuse(self, partition: KafkaTopicPartition, offset: int, bad: BadMessage) -> None:
        place = f"topic {partition.topic!r}, partition {partition.partition}, offset {offset}"
        message = f"KafkaSource: {place}: cannot read the record: {bad.problem}"
        if self._fails:
            raise RecordParseError(
                f"{message}. Correct the format, or call set_on_parse_error('skip') on the builder to skip such records"
            )
        log.warning("%s; skipped", message)

    def close(self) -> None:
        feed, self._feed = self._feed, None
        if feed is None:
            return
        if self._reading:  # it failed in the middle of a range
            feed.close()
        else:
            keep_feed(feed)
