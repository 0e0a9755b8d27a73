"""How far a source has read each shard."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from forkpoint.contract.source import JSON

Kind = Literal["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"]


@dataclass(frozen=True)
class InitialPosition:
    """Where a source starts if it is not restored. LATEST means the time when the source first lists the shards."""

    kind: Kind = "LATEST"
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class ShardPosition:
    """How far a shard has been read. Reading continues after sequence number ``after``, else at ``since_ms``, else at the oldest
    record. ``ended``: the shard was closed and has been read completely. ``seen_ms``: all records that had arrived by then have
    been read, so no record has expired unread while the stream's retention reaches back further."""

    after: str | None = None
    since_ms: int | None = None
    ended: bool = False
    seen_ms: int | None = None

    def to_json(self) -> JSON:
        found = {"after": self.after, "since_ms": self.since_ms, "ended": self.ended or None, "seen_ms": self.seen_ms}
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def from_json(cls, value: JSON) -> ShardPosition:
        return cls(value.get("after"), value.get("since_ms"), bool(value.get("ended")), value.get("seen_ms"))

    def at(self, sequence_number: str, seen_ms: int | None) -> ShardPosition:
        """The position after a record. ``seen_ms``: applies if it is later than the known time."""
        return replace(self, after=sequence_number, since_ms=None, seen_ms=later(self.seen_ms, seen_ms))

    def is_beyond(self, other: ShardPosition) -> bool:
        """Whether this position is ahead of the other."""
        if other.ended:
            return False
        return self.ended or (number(self.after) > number(other.after))

    def iterator(self) -> dict[str, Any]:
        """The request parameters of an iterator that starts here."""
        if self.after is not None:
            return {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": self.after}
        if self.since_ms is not None:
            return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": self.since_ms / 1000}
        return {"ShardIteratorType": "TRIM_HORIZON"}


def number(sequence_number: str | None) -> int:
    """A sequence number as an int. Comparable only within a shard."""
    return -1 if sequence_number is None else int(sequence_number)


def later(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)
