"""Watches a source's partitions on a thread of the driver, so that planning never waits for Kafka."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from forkpoint.connectors.kafka.client import KafkaClient, on_error
from forkpoint.connectors.kafka.cluster import POLL_S, REQUEST_S, Cluster, NoAnswer, Subscription
from forkpoint.connectors.kafka.feed import consumer
from forkpoint.connectors.kafka.offsets import KafkaOffsetsInitializer, KafkaTopicPartition, starting, stopping
from forkpoint.errors import ForkpointError, InputLost, StorageError, SystemUnavailable

log = logging.getLogger("forkpoint.kafka")

REFRESH_S = 0.004  # between requests for ends, which take about 1 ms
REFRESH_IDLE_S = 0.02  # after a second without new records
REFRESH_OF_EACH_S = 0.0002  # in addition, per partition
RETRY_S = 0.5
COMMIT_S = 1.0  # between commits of offsets
GRACE_S = 2.0  # a partition may be unknown, or end too early, for so long while its leader changes
CLOSE_S = 5.0


@dataclass(frozen=True)
class Watch:
    """The settings of a watcher. ``discovery_s``: None to discover partitions once. ``timeout_s``: for the first answer.
    ``group``: the consumer group whose offsets are read, and committed if ``commits``."""

    client: KafkaClient
    subscription: Subscription
    start: KafkaOffsetsInitializer
    stop: KafkaOffsetsInitializer | None = None
    group: str | None = None
    commits: bool = True
    discovery_s: float | None = 300.0
    timeout_s: float = 60.0


@dataclass(frozen=True)
class Seen:
    """A watcher's last observation. ``starts``: offsets of partitions that the position lacks. ``stops``: offsets, if the source
    stops. ``ends``: offsets of all partitions with a leader. ``topics``: the ids of the topics."""

    starts: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)
    stops: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)
    ends: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)


class PartitionWatcher:
    """``known``: the partitions of the position; None if the source has never been read. Later partitions are read from their
    first record. ``stops`` and ``topics`` (topic ids) come from the position. ``problem``: why Kafka does not answer at the
    moment."""

    def __init__(
        self,
        watch: Watch,
        known: set[KafkaTopicPartition] | None,
        stops: Mapping[KafkaTopicPartition, int],
        topics: Mapping[str, str],
        found_input: Callable[[], None],
    ) -> None:
        self._watch = watch
        self._found_input = found_input
        self._first = known is None
        self._partitions = set(known or ())
        self._seen: Seen | None = None
        self._starts: dict[KafkaTopicPartition, int] = {}
        self._stops = dict(stops)
        self._topics = dict(topics)
        self._replaced: dict[str, str] = {}  # the new ids of re-created topics
        self._asked: list[threading.Event] = []  # calls of ``confirm``
        self._grown = time.monotonic()
        self._missing_since: dict[KafkaTopicPartition, float] = {}
        self._failure: ForkpointError | None = None
        self._closed = threading.Event()
        self._wake = threading.Event()
        self._to_commit: Mapping[KafkaTopicPartition, int] | None = None
        self._commit_refused = False
        self.problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="forkpoint-kafka", daemon=True)
        self._thread.start()

    def seen(self) -> Seen | None:
        """The last observation; None if Kafka has not answered yet. Raises the source's failure."""
        if self._failure is not None:
            raise self._failure
        return self._seen

    def confirm(self) -> None:
        """Wait for proof that the topics were not re-created before this call, so that the records read came from the topics
        whose ends were seen. Raises the source's failure, or SystemUnavailable if Kafka does not answer."""
        confirmed, began = threading.Event(), time.monotonic()
        self._asked.append(confirmed)
        self._wake.set()
        while not confirmed.wait(POLL_S):
            if self._failure is not None:
                raise self._failure
            if time.monotonic() > began + REQUEST_S:
                problem = self.problem or f"Kafka at {self._watch.client.servers} does not answer"
                raise SystemUnavailable(f"KafkaSource: {problem}; the epoch is not committed, and its records are read again")

    def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Commit these offsets to the consumer group asynchronously, for monitoring."""
        self._to_commit = offsets

    def close(self) -> None:
        """Stop, after a last commit."""
        self._closed.set()
        self._wake.set()
        self._thread.join(CLOSE_S)

    # -- the thread

    def _run(self) -> None:
        try:
            consumer(self._watch.client, on_error("Kafka")).close()  # finds wrong properties here rather than in a task
            self._follow(Cluster(self._watch.client, min(REQUEST_S, self._watch.timeout_s)))
        except ForkpointError as error:
            self._failure = error
        except Exception as error:
            log.exception("watching %s failed", self._watch.client.servers)
            self._failure = StorageError(f"KafkaSource: watching {self._watch.client.servers} failed: {error!r}")

    def _follow(self, cluster: Cluster) -> None:
        began = time.monotonic()
        discovered: float | None = None
        committed = began
        while not self._closed.is_set():
            now = time.monotonic()
            refresh_s = REFRESH_S if now < self._grown + 1 else REFRESH_IDLE_S
            pause_s = refresh_s + REFRESH_OF_EACH_S * len(self._partitions)
            try:
                if discovered is None or (self._watch.discovery_s is not None and now >= discovered + self._watch.discovery_s):
                    self._discover(cluster)
                    discovered = now
                elif self._asked or self._replaced:
                    self._identify(cluster)
                self._refresh(cluster)
                pause_s = RETRY_S if cluster.stale else pause_s
                if now >= committed + COMMIT_S:
                    self._commit(cluster)
                    committed = now
                if self.problem is not None:
                    log.warning("Kafka at %s answers again", self._watch.client.servers)
                    self.problem = None
            except NoAnswer as trouble:
                if self._seen is None and time.monotonic() > began + self._watch.timeout_s:
                    raise SystemUnavailable(
                        f"KafkaSource: {self._watch.client.servers} does not answer ({trouble}); start the brokers, or correct "
                        "set_bootstrap_servers(). The property default.api.timeout.ms sets the time to wait"
                    ) from None
                if self.problem is None:
                    log.warning("Kafka at %s: %s; waiting for it", self._watch.client.servers, trouble)
                self.problem = f"Kafka at {self._watch.client.servers}: {trouble}"
                pause_s = RETRY_S
            self._wake.wait(pause_s)
            self._wake.clear()
        if self.problem is None:
            self._commit(cluster)

    def _discover(self, cluster: Cluster) -> None:
        watch = self._watch
        new = cluster.partitions(watch.subscription) - self._partitions
        start = watch.start if self._first else KafkaOffsetsInitializer.earliest()
        self._identify(cluster, new)  # before its offsets, so that a topic re-created in between is detected
        bounds = cluster.bounds(new)
        starts = cluster.found(start, watch.group, new)
        self._starts |= {p: starting(start, p, bounds[p], starts.get(p)) for p in new}
        if watch.stop is not None:
            endless = (self._partitions | new) - self._stops.keys()
            bounds |= cluster.bounds(endless - new)
            stops = cluster.found(watch.stop, watch.group, endless)
            self._stops |= {p: stopping(watch.stop, p, bounds[p], stops.get(p)) for p in endless}
        if new and not self._first:
            log.info("KafkaSource: new partitions: %s", ", ".join(sorted(p.split for p in new)))
        self._partitions |= new
        self._first = False

    def _identify(self, cluster: Cluster, new: Collection[KafkaTopicPartition] = ()) -> None:
        """Compare the topics' ids with the known ones, and store unknown ones: of new topics, or after a position of a release
        that did not save ids."""
        asked, topics = list(self._asked), {p.topic for p in (*self._partitions, *new)}
        ids = cluster.topic_ids(topics)
        self._replaced = {topic: id for topic, id in ids.items() if id and self._topics.setdefault(topic, id) != id}
        if topics & self._topics.keys() <= ids.keys() - self._replaced.keys():
            for confirmed in asked:
                confirmed.set()
            del self._asked[: len(asked)]

    def _refresh(self, cluster: Cluster) -> None:
        ends, missing = cluster.ends(self._partitions)
        now = time.monotonic()
        missing |= {p for p in self._partitions if p.topic in self._replaced}
        ends = {p: end for p, end in ends.items() if p.topic not in self._replaced}
        self._missing_since = {p: self._missing_since.get(p, now) for p in missing}
        for partition, since in self._missing_since.items():
            if now >= since + GRACE_S:
                raise InputLost(self._lost(partition))
        before = self._seen.ends if self._seen is not None else {}
        after = {**before, **ends}
        if after != before:
            self._grown = now
        self._seen = Seen(dict(self._starts), dict(self._stops), after, dict(self._topics))
        if after != before:
            self._found_input()

    def _lost(self, partition: KafkaTopicPartition) -> str:
        topic, servers = partition.topic, self._watch.client.servers
        if topic in self._replaced:
            return (
                f"KafkaSource: topic {topic!r} at {servers} was deleted and re-created (its id was {self._topics[topic]} and "
                f"is {self._replaced[topic]}): the job's offsets are invalid in it, and the unread records of the old topic are "
                "gone. To read the new topic from its start, give the source a new uid"
            )
        return (
            f"KafkaSource: partition {partition.partition} of topic {topic!r} no longer exists at {servers}: the topic was "
            "deleted. To go on without it, leave it out of the source's topics; to start afresh, give the source a new uid"
        )

    def _commit(self, cluster: Cluster) -> None:
        offsets, self._to_commit = self._to_commit, None
        if offsets is None or self._watch.group is None or not self._watch.commits or self._commit_refused:
            return
        try:
            cluster.commit(self._watch.group, offsets)
        except NoAnswer as trouble:
            log.info("%s", trouble)
        except ForkpointError as error:
            self._commit_refused = True
            log.warning("%s. The job does not need them and continues", error)
