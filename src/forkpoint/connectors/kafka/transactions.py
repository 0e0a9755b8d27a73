"""Sending committed output to Kafka exactly once.

librdkafka cannot resume a prepared transaction, so there is no two-phase commit. Instead, output is staged with its epoch, and
sent after the epoch's commit: in one transaction that also commits the epoch's number, as the offset of a consumer group of
the sink's own. A commit that is repeated reads that offset first. Initializing a transactional id fences whoever used it before
and ends their transaction, so nobody changes the offset between the look at it and the transaction's end; whoever is fenced
starts again, and finds what the other has sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.committing import Committer, CommitterContext
from forkpoint.connectors.kafka.errors import raising_errors
from forkpoint.connectors.kafka.records import unpack
from forkpoint.connectors.staging import staged
from forkpoint.errors import JobFailed

ANSWER_SECONDS = 20.0  # for the brokers' answers, before the commit is tried again
TRANSACTION_TIMEOUT_MS = 120_000
CONNECTION = (
    "bootstrap.servers", "client.", "security.", "sasl.", "ssl.", "socket.", "enable.ssl", "metadata.", "reconnect.",
    "broker.", "error_cb", "log",
)  # fmt: skip
"""Settings of consumers and producers alike begin with one of these."""


class TransactionalCommitter(Committer):
    """Sends one group's output. ``settings``: of the client. ``prefix``: of its transactional id and consumer group."""

    def __init__(self, context: CommitterContext, settings: Mapping[str, Any], prefix: str) -> None:
        self._context = context
        self._settings = dict(settings)
        self.name = f"{prefix}-{context.job}-{context.uid}-{context.incarnation}-{context.group}"

    def commit(self, outputs: Sequence[EpochOutput]) -> None:
        topics = sorted({topic for output in outputs for c in output.committables for topic in c["topics"]})
        with raising_errors(f"sink {self._context.uid!r}") as problems:
            client = _Transactions(self.name, {**self._settings, "error_cb": problems.append})
            try:
                sent = client.sent(topics)
                todo = [output for output in outputs if output.epoch > self._sent_before(output, sent)]
                if todo:
                    client.send(self._batches(todo), topics, todo[-1].epoch)
            finally:
                client.close()

    def _sent_before(self, output: EpochOutput, sent: Mapping[str, int]) -> int:
        """The newest epoch that was sent before."""
        newest = max(sent[topic] for c in output.committables for topic in c["topics"])
        if newest > self._context.newest:
            raise JobFailed(
                f"sink {self._context.uid!r}: Kafka's consumer group {self.name!r} says that epoch {newest} was sent, but "
                f"the job's newest checkpoint is of epoch {self._context.newest}. Was the state root put back to an "
                "earlier copy? Output since then would be left out or repeated: give the job another name, or delete "
                "that group to send everything again"
            )
        return newest

    def _batches(self, outputs: Iterable[EpochOutput]) -> Iterable[pa.RecordBatch]:
        for output in outputs:
            for committable in output.committables:
                yield from unpack(staged(self._context.state_root, committable["records"]))


class _Transactions:
    """The transactional producer of one id, and the consumer group of its name."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        from confluent_kafka import Consumer, Producer

        connection = {key: value for key, value in settings.items() if key.startswith(CONNECTION)}
        self._consumer = Consumer({**connection, "group.id": name, "enable.auto.commit": False})
        self._producer = Producer(
            {
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "partitioner": "murmur2_random", "linger.ms": 5,
                **settings, "transactional.id": name,
            }
        )  # fmt: skip
        self._producer.init_transactions(ANSWER_SECONDS)

    def sent(self, topics: Sequence[str]) -> dict[str, int]:
        """The newest epoch that was sent to each topic, or 0."""
        from confluent_kafka import TopicPartition

        known = self._consumer.committed([TopicPartition(topic, 0) for topic in topics], timeout=ANSWER_SECONDS)
        return {each.topic: max(each.offset, 0) for each in known}

    def send(self, batches: Iterable[pa.RecordBatch], topics: Sequence[str], epoch: int) -> None:
        """Send records in one transaction."""
        from confluent_kafka import TopicPartition

        producer = self._producer
        producer.begin_transaction()
        for batch in batches:
            self._produce(batch)
        offsets = [TopicPartition(topic, 0, epoch) for topic in topics]
        producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), ANSWER_SECONDS)
        producer.commit_transaction(TRANSACTION_TIMEOUT_MS / 1000)

    def _produce(self, batch: pa.RecordBatch) -> None:
        produce, poll = self._producer.produce, self._producer.poll
        columns = batch.to_pydict()
        for topic, partition, timestamp_ms, key, value, headers in zip(*columns.values(), strict=True):
            options: dict[str, Any] = {}
            if partition is not None:
                options["partition"] = partition
            if timestamp_ms is not None:
                options["timestamp"] = timestamp_ms
            if headers:
                options["headers"] = [(header["key"], header["value"]) for header in headers]
            while True:
                try:
                    produce(topic, value, key, **options)
                    break
                except BufferError:
                    poll(0.1)

    def close(self) -> None:
        self._consumer.close()
        self._producer.purge()  # an unfinished transaction ends with the next one's beginning
        self._producer.close()
