"""A consumer that stays connected between epochs, and prefetches messages.

It serves one partition at a time, and buffers messages of its other partitions, up to a limit.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import methodcaller
from typing import TYPE_CHECKING

from forkpoint.connectors.kafka.client import QUIET, KafkaClient, log, on_error
from forkpoint.connectors.kafka.cluster import REQUEST_S
from forkpoint.connectors.kafka.errors import forkpoint_error, is_missing, is_refused, is_temporary
from forkpoint.connectors.kafka.offsets import KafkaTopicPartition
from forkpoint.errors import StorageError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

BATCH = 5_000  # messages that fit into the processor's cache
HELD_BYTES = 4 << 20  # of partitions that other processes may read, so that fetching them was useless
POLL_S = 0.1
FORGET_S = 10.0  # another process probably reads a partition that was not read here for so long

_OFFSET = methodcaller("offset")

_DEFAULTS = {
    **QUIET,
    "isolation.level": "read_committed",
    "group.id": "forkpoint",  # needed, but never joined
    "queued.min.messages": "20000",  # the default of 100,000 would be wasted when another process reads the partition
    "fetch.wait.max.ms": "20",  # the delay at a partition's end, and before other partitions are fetched
    "fetch.queue.backoff.ms": "5",  # the queue would run empty during the default of one second
    "topic.metadata.propagation.max.ms": "5000",  # then a missing topic counts as deleted
}
_FIXED = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,  # reports that the rest of a range has only invisible records
    "auto.offset.reset": "error",
}


@dataclass(eq=False)
class _Track:
    """A partition. ``next``: the reader's next offset. ``held``: the messages from there up to ``fetched``, about ``held_bytes``
    in size. ``assigned``: whether the consumer fetches the partition."""

    partition: KafkaTopicPartition
    next: int
    fetched: int
    held: list[Message] = field(default_factory=list, repr=False)
    held_bytes: float = 0.0
    assigned: bool = False
    read_s: float = 0.0

    def hold(self, messages: list[Message]) -> None:
        self.held += messages
        self.held_bytes += sum(map(len, messages))

    def skip_to(self, offset: int) -> None:
        self._cut(offset)
        self.next = offset

    def take(self, end: int) -> list[Message]:
        """The held messages below ``end``."""
        taken = self._cut(end)
        self.next = min(end, self.fetched)
        return taken

    def _cut(self, offset: int) -> list[Message]:
        """Release the messages before this offset and return them."""
        cut = bisect_left(self.held, offset, key=_OFFSET)
        if cut:
            self.held_bytes *= 1 - cut / len(self.held)
        taken, self.held = self.held[:cut], self.held[cut:]
        return taken


def consumer(client: KafkaClient, on_error: Callable[[KafkaError], None]) -> Consumer:
    """A consumer without partitions. Raises ConfigError for invalid properties."""
    from confluent_kafka import Consumer, KafkaException

    try:
        return Consumer({**_DEFAULTS, **client.settings(), **_FIXED, "error_cb": on_error})
    except KafkaException as error:
        raise forkpoint_error(error, f"Kafka at {client.servers}: the properties are refused") from None


class Feed:
    """Messages of partitions, by ranges of offsets."""

    def __init__(self, client: KafkaClient) -> None:
        self.client = client
        self._reset = client.settings().get("auto.offset.reset", "none")
        self._log = on_error(f"Kafka at {client.servers}")
        self._refused: KafkaError | None = None
        self._tracks: dict[KafkaTopicPartition, _Track] = {}
        self._consumer = consumer(client, self._on_error)

    def _on_error(self, error: KafkaError) -> None:
        self._log(error)
        if is_refused(error):
            self._refused = error

    def close(self) -> None:
        self._consumer.close()

    def messages(self, partition: KafkaTopicPartition, start: int, end: int) -> Iterator[list[Message]]:
        """The committed messages with offsets from ``start`` to ``end``, in order."""
        if start >= end:
            return
        track = self._track(partition, start)
        while track.next < end:
            while track.fetched < end and len(track.held) < BATCH:
                self._fetch(track)
            if taken := track.take(end):
                yield taken
        track.read_s = time.monotonic()

    def _track(self, partition: KafkaTopicPartition, start: int) -> _Track:
        """A partition's track at an offset."""
        track = self._tracks.get(partition)
        if track is not None and start < track.next:
            # A new consumer has no messages that were fetched beyond the offset.
            self.close()
            self._tracks.clear()
            self._consumer = consumer(self.client, self._on_error)
            track = None
        if track is not None and start > track.fetched:
            self._suspend([track])
            track = None
        if track is None:
            track = self._tracks[partition] = _Track(partition, start, start)
        track.skip_to(start)
        return track

    def _fetch(self, track: _Track) -> None:
        """Fetch messages of this track or others."""
        if not track.assigned:
            self._consumer.incremental_assign([_at(track.partition, track.fetched)])
            track.assigned = True
        messages = self._consumer.consume(BATCH, 0)
        if not messages and (first := self._consumer.poll(POLL_S)) is not None:
            messages = [first, *self._consumer.consume(BATCH, 0)]
        if self._refused is not None:
            raise forkpoint_error(self._refused, f"Kafka at {self.client.servers}")
        for partition, run in _runs(messages):
            if (owner := self._tracks.get(partition)) is not None:
                self._hold(owner, run)
        self._limit_held(track)

    def _hold(self, track: _Track, run: list[Message]) -> None:
        """Buffer successive messages of a partition, and process the events among them."""
        from confluent_kafka import Message

        if any(map(Message.error, run)):
            for message in run:
                if (error := message.error()) is not None:
                    self._on_event(track, message, error)
                else:
                    self._hold(track, [message])
            return
        if run[0].offset() < track.fetched:
            run = run[bisect_left(run, track.fetched, key=_OFFSET) :]
        if run:
            track.hold(run)
            track.fetched = run[-1].offset() + 1

    def _limit_held(self, reading: _Track) -> None:
        """Stop fetching other partitions while too many of their messages are buffered. Forget partitions that nobody reads."""
        others = [track for track in self._tracks.values() if track is not reading]
        if sum(track.held_bytes for track in others) < HELD_BYTES:
            return
        stale = [track for track in others if track.read_s < time.monotonic() - FORGET_S]
        self._suspend(stale)
        for track in stale:
            del self._tracks[track.partition]
        others = [track for track in others if track not in stale]
        if sum(track.held_bytes for track in others) >= HELD_BYTES:
            self._suspend(others)

    def _suspend(self, tracks: Iterable[_Track]) -> None:
        assigned = [track for track in tracks if track.assigned]
        if assigned:
            self._consumer.incremental_unassign([_at(track.partition, track.fetched) for track in assigned])
        for track in assigned:
            track.assigned = False

    def _on_event(self, track: _Track, message: Message, error: KafkaError) -> None:
        from confluent_kafka import KafkaError as Codes

        topic, partition = track.partition
        if error.code() == Codes._PARTITION_EOF:
            track.fetched = max(track.fetched, message.offset())
        elif error.code() in (Codes._AUTO_OFFSET_RESET, Codes.OFFSET_OUT_OF_RANGE):
            self._reset_or_fail(track)
        elif is_missing(error):
            raise StorageError(
                f"KafkaSource: partition {partition} of topic {topic!r} no longer exists at {self.client.servers}: the topic was "
                "deleted. To go on without it, leave it out of the source's topics; to start afresh, give the source a new uid"
            )
        elif is_temporary(error):
            log.info("%s: %s", track.partition.split, error.str())
        else:
            raise forkpoint_error(error, f"KafkaSource: reading {track.partition.split} at offset {track.fetched}")

    def _reset_or_fail(self, track: _Track) -> None:
        """Reset the next offset, which is missing, or raise StorageError."""
        from confluent_kafka import KafkaException

        topic, partition = track.partition
        self._suspend([track])
        try:
            first, end = self._consumer.get_watermark_offsets(_at(track.partition, 0), timeout=REQUEST_S)
        except KafkaException as error:
            log.info("the offsets of %s cannot be read: %s; trying again", track.partition.split, error)
            return
        what = f"KafkaSource: partition {partition} of topic {topic!r} has the offsets {first} to {end}, not {track.fetched}"
        if self._reset not in ("earliest", "smallest", "beginning", "latest", "largest", "end"):
            if track.fetched > end:
                raise StorageError(f"{what}: the topic was re-created, or lost data")
            raise StorageError(
                f"{what}: retention removed records before the job read them. Raise the topic's retention.ms or "
                "retention.bytes; to go on without them, set the property auto.offset.reset to earliest"
            )
        log.warning("%s; the records between are lost because auto.offset.reset is %s", what, self._reset)
        track.fetched = max(track.fetched, first if self._reset in ("earliest", "smallest", "beginning") else end)


def _runs(messages: list[Message]) -> Iterator[tuple[KafkaTopicPartition, list[Message]]]:
    """Group messages into runs of one partition."""
    from confluent_kafka import Message

    # Mapping methods is several times as fast as a loop over the messages.
    topics, partitions = list(map(Message.topic, messages)), list(map(Message.partition, messages))
    if len(set(partitions)) == 1 and len(set(topics)) == 1:
        yield KafkaTopicPartition(topics[0], partitions[0]), messages
        return
    start = 0
    for (topic, partition), run in groupby(zip(topics, partitions, strict=True)):
        stop = start + sum(1 for _ in run)
        yield KafkaTopicPartition(topic, partition), messages[start:stop]
        start = stop


def _at(partition: KafkaTopicPartition, offset: int) -> TopicPartition:
    from confluent_kafka import TopicPartition

    return TopicPartition(*partition, offset)


# This process's feeds without a reader. (A forked process cannot use its parent's.)
_idle: dict[tuple[int, KafkaClient], list[Feed]] = {}


def open_feed(client: KafkaClient) -> Feed:
    """A feed of this process, or a new one."""
    try:
        return _idle[os.getpid(), client].pop()
    except (KeyError, IndexError):
        return Feed(client)


def keep_feed(feed: Feed) -> None:
    """Keep a feed for a later reader."""
    _idle.setdefault((os.getpid(), feed.client), []).append(feed)


def close_feeds(client: KafkaClient) -> None:
    """Close the feeds that ``keep_feed`` kept."""
    for feed in _idle.pop((os.getpid(), client), ()):
        feed.close()
