"""Follows a stream's shards on threads of the driver, so that planning never waits for Kinesis.

Kinesis does not report a shard's current end. So the driver reads ahead: it gets the records, keeps their sequence numbers and
drops the rest. Tasks get the records of a range of sequence numbers again.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Literal

from forkpoint.errors import ConfigError, ForkpointError, InputLost, StorageError, SystemUnavailable
from forkpoint_kinesis.ahead import ShardAhead
from forkpoint_kinesis.client import AwsClient, Stream
from forkpoint_kinesis.errors import code_of, forkpoint_error, is_expired, is_throttled
from forkpoint_kinesis.position import InitialPosition, ShardPosition
from forkpoint_kinesis.requests import RECORDS, Shard, StreamRequests, Summary

log = logging.getLogger("forkpoint.kinesis")

THREADS = 8
AHEAD, LEAST_AHEAD = 200_000, 1000  # read-ahead in records: of all shards, about 20 MB; the minimum of a shard
RETRY_S = 0.5
LONGEST_RETRY_S = 10.0
TICK_S = 0.1
CLOCKS_MS = 5000  # the tolerated difference between clocks
CLOSE_S = 5.0
CHECK_S = 1.0
_MAX_EMPTY = 20  # empty responses when looking for a record
FIRST_ANSWER_S = 60.0  # time limit

OnExpired = Literal["fail", "skip"]


@dataclass(frozen=True)
class Watch:
    """What to watch. ``poll_s``: interval between requests for a shard's records; a shard allows five per second, over all its
    readers. ``discovery_s``: interval of listing shards. ``batch``: the maximum number of records per request."""

    client: AwsClient
    stream: Stream
    start: InitialPosition
    poll_s: float = 0.3
    discovery_s: float = 10.0
    batch: int = RECORDS
    on_expired: OnExpired = "fail"

    @property
    def what(self) -> str:
        return f"KinesisSource: stream {self.stream.name!r}"

    @property
    def remedy(self) -> str:
        return "create it, or correct set_stream_name()"

    def connect(self) -> StreamRequests:
        return StreamRequests(self.client.connect("kinesis", self.what), self.stream)


class ShardWatcher:
    """``known``: the position's shards; None if the stream has never been read. Shards that appear later are read from their
    first record. ``created_s``: the creation time of the position's stream."""

    def __init__(self, watch: Watch, known: Mapping[str, ShardPosition] | None, created_s: int | None) -> None:
        self._watch = watch
        self._first = known is None
        self._shards = {id: ShardAhead(id, position, restored=True) for id, position in (known or {}).items()}
        self._listed: Mapping[str, Shard] | None = None
        self._summary: Summary | None = None
        self._created_s = created_s
        self._failure: ForkpointError | None = None
        self._lock = threading.Lock()
        self._listing = threading.Lock()
        self._closed = threading.Event()
        self._checked_s = 0.0
        self._silent = False
        self._limit = LEAST_AHEAD
        self._thread = threading.Thread(target=self._run, name="forkpoint-kinesis", daemon=True)
        self._thread.start()

    @property
    def created_s(self) -> int | None:
        return self._created_s

    def listed(self) -> Mapping[str, Shard] | None:
        """The service's shards; None before its first response. Raises the error that fails the source."""
        if self._failure is not None:
            raise self._failure
        return self._listed

    def ahead(self, shard: str) -> ShardAhead:
        """The read-ahead of a shard that is or was listed."""
        with self._lock:
            return self._shards[shard]

    def close(self) -> None:
        self._closed.set()
        self._thread.join(CLOSE_S)

    # -- the thread

    def _run(self) -> None:
        try:
            requests = self._watch.connect()
            if self._begin(requests):
                self._follow(requests)
        except ForkpointError as error:
            self._failure = error
        except Exception as error:
            log.exception("%s: watching it failed", self._watch.what)
            self._failure = StorageError(f"{self._watch.what}: watching it failed: {error!r}")

    def _begin(self, requests: StreamRequests) -> bool:
        """Describe and list the stream for the first time. Returns False if closed before that succeeds."""
        began = time.monotonic()
        while not self._closed.is_set():
            try:
                self._check_created(requests)
                self._list(requests)
                return True
            except ForkpointError:
                raise
            except Exception as error:
                trouble = self._check_temporary(error)
                if time.monotonic() > began + FIRST_ANSWER_S:
                    raise trouble from error
            self._closed.wait(RETRY_S)
        return False

    def _check_created(self, requests: StreamRequests) -> None:
        """Raise InputLost if the stream has been replaced by another of the same name."""
        self._checked_s = time.monotonic()
        self._summary = summary = requests.summary()
        if self._created_s is None:
            self._created_s = summary.created_s
        if summary.created_s != self._created_s:
            raise InputLost(
                f"{self._watch.what} was created anew since the job read it: its records are different. To read them, "
                "give the source a new uid"
            )

    def _list(self, requests: StreamRequests) -> None:
        with self._listing:
            found, now_ms = requests.shards()
            with self._lock:
                for id in found.keys() - self._shards.keys():
                    self._shards[id] = ShardAhead(id, self._initial(now_ms), restored=False)
                    if not self._first:
                        log.info("%s: new shard %s", self._watch.what, id)
            self._first = False
            self._listed = found

    def _initial(self, now_ms: int) -> ShardPosition:
        """The start of a shard that the position does not contain."""
        start = self._watch.start if self._first else InitialPosition("TRIM_HORIZON")
        if start.kind == "TRIM_HORIZON":
            return ShardPosition(seen_ms=None if self._first else now_ms)
        if start.kind == "LATEST":
            return ShardPosition(since_ms=now_ms, seen_ms=now_ms)
        return ShardPosition(since_ms=start.timestamp_ms)

    def _follow(self, requests: StreamRequests) -> None:
        busy: dict[Future[None], ShardAhead] = {}
        listed = time.monotonic()
        with ThreadPoolExecutor(THREADS, "forkpoint-kinesis") as threads:
            while not self._closed.is_set():
                now = time.monotonic()
                if now >= listed + self._watch.discovery_s:
                    busy[threads.submit(self._list_again, requests)] = ShardAhead("", ShardPosition(), restored=False)
                    listed = now
                busy_shards = {shard.id for shard in busy.values()}
                for shard in self._due(now):
                    if shard.id not in busy_shards:
                        busy[threads.submit(self._scan, requests, shard)] = shard
                pause_s = min([TICK_S, *(shard.due_s - now for shard in self._due(now + TICK_S) if shard.due_s > now)])
                if busy:
                    for done in wait(busy, max(0.005, pause_s), FIRST_COMPLETED).done:
                        del busy[done]
                        done.result()
                else:
                    self._closed.wait(max(0.005, pause_s))

    def _due(self, now: float) -> list[ShardAhead]:
        """The shards to request records from now. Excludes shards whose parents have not been read to the end."""
        assert self._listed is not None
        with self._lock:
            ready = [s for s in self._shards.values() if not s.closed and self._parents_closed(s.id)]
        self._limit = max(LEAST_AHEAD, AHEAD // max(1, len(ready)))
        return [shard for shard in ready if shard.due_s <= now and shard.count < self._limit]

    def _parents_closed(self, id: str) -> bool:
        shard = (self._listed or {}).get(id)
        parents = () if shard is None else shard.parents
        return all(self._shards[p].closed for p in parents if p in self._shards)

    def _list_again(self, requests: StreamRequests) -> None:
        try:
            self._check_created(requests)
            self._list(requests)
        except ForkpointError:
            raise
        except Exception as error:
            self._check_temporary(error)

    # -- per shard

    def _scan(self, requests: StreamRequests, shard: ShardAhead) -> None:
        """Get the next records of a shard."""
        try:
            self._check_kept(requests, shard)
            if shard.iterator is None:
                if time.monotonic() > self._checked_s + CHECK_S:  # iterators do not survive their stream
                    self._check_created(requests)
                shard.iterator = requests.iterator(shard.id, shard.position.iterator())
            asked_ms = time.time_ns() // 1_000_000
            answer = requests.records(shard.iterator, min(self._watch.batch, self._limit))
            if answer.next is None:
                self._list(requests)  # its children must be known before its end is
        except Exception as error:
            self._on_error(shard, error)
            return
        if self._silent:
            self._silent = False
            log.warning("%s answers again", self._watch.what)
        shard.tries = 0
        records = shard.unread(answer.records)
        shard.add([r["SequenceNumber"] for r in records], asked_ms - answer.behind_ms, answer.next)
        shard.due_s = time.monotonic() + self._watch.poll_s

    def _check_kept(self, requests: StreamRequests, shard: ShardAhead) -> None:
        """Raise if records may have expired before they were read, because Kinesis skips them silently."""
        assert self._summary is not None
        position, retention_ms = shard.position, self._summary.retention_ms
        if position.seen_ms is None or time.time_ns() // 1_000_000 <= position.seen_ms + retention_ms:
            shard.caught_up = shard.caught_up or position.seen_ms is not None
            return
        if not shard.caught_up and not shard.restored:
            return  # it reads the oldest existing records, whichever they are
        if position.after is not None and _has_record(requests, shard.id, position.after):
            return
        self._report_loss(
            shard,
            f"the job has read the records that arrived until {_utc(position.seen_ms)}, and the stream keeps records for "
            f"{retention_ms // 3_600_000} hours: later records may have expired unread",
        )
        shard.position = replace(position, seen_ms=None)
        shard.iterator, shard.caught_up, shard.restored = None, False, False

    def _report_loss(self, shard: ShardAhead, what: str) -> None:
        """Fail, or continue although records may have been lost."""
        if self._watch.on_expired == "fail":
            raise StorageError(
                f"{self._watch.what}, {shard.id}: {what}. Raise the stream's retention period "
                "(increase-stream-retention-period), or call set_on_expired('skip') on the builder to read the remaining records"
            )
        log.warning("%s, %s: %s. The job continues with the remaining records", self._watch.what, shard.id, what)

    def _on_error(self, shard: ShardAhead, error: Exception) -> None:
        if code_of(error) == "ResourceNotFoundException" and shard.id not in (self._listed or {}):
            self._report_loss(shard, "the shard no longer exists: its records expired before the job read them")
            shard.add((), 0, None)
            return
        if is_expired(error):
            shard.iterator = None
            return
        since_ms, now_ms = shard.position.since_ms, time.time_ns() // 1_000_000
        if code_of(error) == "InvalidArgumentException" and since_ms is not None and since_ms > now_ms - CLOCKS_MS:
            # Kinesis refuses times that are later than its own clock.
            if since_ms > now_ms + CLOCKS_MS:
                start = _utc(since_ms)
                raise ConfigError(f"{self._watch.what}: the initial position {start} is in the future; give a time before now")
            shard.due_s = time.monotonic() + RETRY_S
            return
        if isinstance(error, ForkpointError):
            raise error
        shard.tries += 1
        pause = min(LONGEST_RETRY_S, RETRY_S * 2 ** min(shard.tries - 1, 10)) * random.uniform(0.5, 1)
        shard.due_s = time.monotonic() + pause
        if is_throttled(error):
            log.info("%s, %s: too many requests; next request in %.1f s", self._watch.what, shard.id, pause)
        else:
            self._check_temporary(error)
            shard.iterator = None

    def _check_temporary(self, error: Exception) -> ForkpointError:
        """Log that the service is temporarily unavailable. Raises any other error as a forkpoint error."""
        watch = self._watch
        trouble = forkpoint_error(error, watch.what, watch.client.place, watch.remedy)
        if not isinstance(trouble, SystemUnavailable):
            raise trouble from error
        if not self._silent:
            self._silent = True
            log.warning("%s; waiting for it", trouble)
        return trouble


def _utc(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ms / 1000))


def _has_record(requests: StreamRequests, shard: str, sequence_number: str) -> bool:
    """Whether a shard still has a record."""
    at = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": sequence_number}
    iterator: str | None = requests.iterator(shard, at)
    for _ in range(_MAX_EMPTY):
        if iterator is None:
            return False
        found = requests.records(iterator, 1)
        if found.records:
            return bool(found.records[0]["SequenceNumber"] == sequence_number)
        if found.behind_ms == 0:
            return False
        iterator = found.next  # a response may be empty although there are records
    return False
