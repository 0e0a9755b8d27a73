"""Requests to a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from forkpoint_kinesis.client import Stream
from forkpoint_kinesis.errors import field

RECORDS = 10_000  # the service's maximum per request


@dataclass(frozen=True)
class Shard:
    """A shard as listed by the service. ``parents``: the shards that were split or merged into it. ``hashes``: its first and last
    hash key."""

    id: str
    parents: tuple[str, ...]
    hashes: tuple[int, int]


@dataclass(frozen=True)
class Answer:
    """A response to GetRecords. ``next``: the next iterator; None at the end of a closed shard. ``behind_ms``: the distance to
    the shard's tip."""

    records: Sequence[Any]
    next: str | None
    behind_ms: int


@dataclass(frozen=True)
class Summary:
    """A stream's creation time, in s since 1970, and its retention period."""

    created_s: int
    retention_ms: int


@dataclass(frozen=True)
class StreamRequests:
    """Requests a stream's shards and records. Raises the client's own errors."""

    client: Any
    stream: Stream

    def summary(self) -> Summary:
        found = self.client.describe_stream_summary(**self.stream.named)
        found = field(found, "StreamDescriptionSummary")
        return Summary(int(found["StreamCreationTimestamp"].timestamp()), int(found["RetentionPeriodHours"]) * 3_600_000)

    def shards(self) -> tuple[dict[str, Shard], int]:
        """All shards that have records or may get them, and the service's time in ms."""
        found: dict[str, Shard] = {}
        request: dict[str, Any] = dict(self.stream.named)
        while True:
            answer = self.client.list_shards(**request)
            for shard in field(answer, "Shards"):
                parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
                hashes = shard["HashKeyRange"]
                found[shard["ShardId"]] = Shard(
                    shard["ShardId"],
                    tuple(p for p in parents if p),
                    (int(hashes["StartingHashKey"]), int(hashes["EndingHashKey"])),
                )
            if not (token := answer.get("NextToken")):
                return found, _time_ms(answer)
            request = {"NextToken": token}

    def iterator(self, shard: str, at: dict[str, Any]) -> str:
        found: str = field(self.client.get_shard_iterator(**self.stream.named, ShardId=shard, **at), "ShardIterator")
        return found

    def records(self, iterator: str, limit: int = RECORDS) -> Answer:
        arn = {} if self.stream.arn is None else {"StreamARN": self.stream.arn}
        found = self.client.get_records(ShardIterator=iterator, Limit=limit, **arn)
        return Answer(field(found, "Records"), found.get("NextShardIterator"), int(found.get("MillisBehindLatest") or 0))


def _time_ms(answer: Any) -> int:
    """The service's time, from this host's finer clock unless that is off by more than 2 s."""
    now = datetime.now(UTC)
    said = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    theirs = now if said is None else parsedate_to_datetime(said)
    return int((theirs if abs(theirs - now).total_seconds() > 2 else now).timestamp() * 1000)
