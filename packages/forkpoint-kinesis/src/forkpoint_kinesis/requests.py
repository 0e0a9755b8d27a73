"""Requests to a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from forkpoint_kinesis.client import Stream
from forkpoint_kinesis.errors import field

RECORDS = 10_000  # the most that a request gets


@dataclass(frozen=True)
class Shard:
    """A shard as the service lists it. ``parents``: those that it was made of by a split or a merge. ``hashes``: the first and
    the last hash key."""

    id: str
    parents: tuple[str, ...]
    hashes: tuple[int, int]


@dataclass(frozen=True)
class Answer:
    """Records, and where to go on: None at the end of a closed shard. ``behind_ms``: how far it is from the shard's tip."""

    records: Sequence[Any]
    next: str | None
    behind_ms: int


@dataclass(frozen=True)
class Summary:
    """When a stream was created, in s since 1970, and for how long it keeps records."""

    created_s: int
    retention_ms: int


@dataclass(frozen=True)
class StreamRequests:
    """Asks for one stream's shards and records. Raises the client's own errors."""

    client: Any
    stream: Stream

    def summary(self) -> Summary:
        found = self.client.describe_stream_summary(**self.stream.named)
        found = field(found, "StreamDescriptionSummary")
        return Summary(int(found["StreamCreationTimestamp"].timestamp()), int(found["RetentionPeriodHours"]) * 3_600_000)

    def shards(self) -> tuple[dict[str, Shard], int]:
        """All shards that still have records, or will have them; and the service's time in ms."""
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
    """The service's time. This host's clock is finer, and is used unless it is wrong."""
    now = datetime.now(UTC)
    said = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    theirs = now if said is None else parsedate_to_datetime(said)
    return int((theirs if abs(theirs - now).total_seconds() > 2 else now).timestamp() * 1000)
