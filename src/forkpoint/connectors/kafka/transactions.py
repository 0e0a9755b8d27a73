"""Sends committed output to Kafka exactly once.

librdkafka cannot resume a prepared transaction, so there is no two-phase commit. Instead, an epoch's output is staged, and sent
in one transaction that also commits the epoch's number as the offset of the sink's own consumer group. The transaction may begin
while the driver writes the epoch's manifest (``pre_commit``), and ends after that; if other output is committed instead, it is
aborted. A repeated commit reads the offset first. Initializing a transactional id fences its previous user and ends that user's
transaction, so nobody changes the offset between its reading and the transaction's end. A fenced committer starts again, and
finds the epochs that the other has sent.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.kafka.client import KafkaClient
from forkpoint.connectors.kafka.errors import is_fenced, is_missing, is_refusal, raising_errors
from forkpoint.connectors.kafka.limits import TopicLimits, ask_limits, refused_rows
from forkpoint.connectors.kafka.producing import ANSWER_SECONDS, SCHEMA, produce, producer_settings, shared_settings
from forkpoint.connectors.ledger import refuse_put_back
from forkpoint.connectors.rows import unpack_columns
from forkpoint.contract.sink import Committer, CommitterContext
from forkpoint.errors import JobFailed, SystemUnavailable

if TYPE_CHECKING:
    from confluent_kafka import KafkaException

TRANSACTION_TIMEOUT_MS = 120_000
_RETRY_MS = 1
"""A transaction that follows another begins once the broker has marked that one's end, some milliseconds later. By default, the
client asks again after 100 ms. After errors, it doubles the time up to a second anyway."""
_TRIES = 10  # of a commit that others fence
_PAUSE_SECONDS = 0.5
_MAX_PROBLEMS = 10
_STALL_SECONDS = 1.0  # without progress, before querying the transaction's error
BATCH_BYTES = 1_000_000  # librdkafka's default of batch.size
_ABORT_SECONDS = 2.0  # for the abort of a transaction, which the next client repeats
_LATE_SECONDS = 2.0  # a call may exceed its timeout by this


class TransactionalCommitter(Committer):
    """Sends one group's output. ``prefix`` begins its transactional id and consumer group."""

    def __init__(self, context: CommitterContext, client: KafkaClient, prefix: str) -> None:
        self._context = context
        self._client = client
        self._transactions: _Transactions | None = None
        self._sent: EpochOutput | None = None  # in a transaction that has not ended
        self._limits: dict[str, TopicLimits] = {}
        self.name = f"{prefix}-{context.job}-{context.uid}-{context.incarnation}-{context.group}"

    def commit(self, output: EpochOutput, newest: int) -> None:
        from confluent_kafka import KafkaException

        with raising_errors(self._client.servers) as problems:
            for tries in range(_TRIES):
                try:
                    return self._commit(output, newest, problems)
                except (KafkaException, SystemError) as raised:
                    self.close()
                    exception = _of_callback(raised)
                    if any(map(is_missing, (exception.args[0], *problems))):
                        self._must_exist(_topics(output))
                    if tries == _TRIES - 1 or not is_fenced(exception.args[0]):
                        raise exception from None
                    # The first time, the other process has most likely committed its epoch meanwhile.
                    if tries > 0:
                        time.sleep(random.uniform(0, _PAUSE_SECONDS))

    def _must_exist(self, topics: Sequence[str]) -> None:
        """The client may report the partition as missing when the topic is."""
        if missing := sorted(set(topics) - ask_limits(self._client, topics).keys()):
            where = f"Kafka at {self._client.servers}"
            raise JobFailed(f"{where}: topic {missing[0]!r} does not exist; create the topic, or correct its name")

    def pre_commit(self, output: EpochOutput) -> None:
        with raising_errors(self._client.servers) as problems:
            transactions, topics = self._ready(output, problems)
            if self._sent is None and output.epoch > max(transactions.sent(topics).values()):
                self._sent = output  # perhaps in part only: after an error, ``close`` aborts it
                transactions.send(self._batches(output), topics, output.epoch)

    def _commit(self, output: EpochOutput, newest: int, problems: list[Any]) -> None:
        transactions, topics = self._ready(output, problems)
        if self._sent is None:
            sent = max(transactions.sent(topics).values())
            refuse_put_back(sent, newest, f"Kafka's consumer group {self.name!r}")
            if output.epoch <= sent:
                return
            transactions.send(self._batches(output), topics, output.epoch)
        self._sent = None
        transactions.commit(topics, output.epoch)

    def _ready(self, output: EpochOutput, problems: list[Any]) -> tuple[_Transactions, list[str]]:
        """A client for this output, in whose transaction it may have been sent, and nothing else; and the output's topics."""
        topics = _topics(output)
        new = [topic for topic in topics if topic not in self._limits]
        if new:
            self._limits |= ask_limits(self._client, new)
        if self._transactions is not None and (new or self._transactions.had_trouble() or self._sent not in (None, output)):
            self.close()
        if self._transactions is None:
            # All topics must accept the largest batch: brokers refuse larger ones, however small their records are.
            limits = [topic.batch_bytes for topic in self._limits.values() if topic.batch_bytes is not None]
            batch_bytes = min([int(self._client.settings().get("batch.size", BATCH_BYTES)), *limits])
            self._transactions = _Transactions(self.name, self._client, batch_bytes)
        self._transactions.problems = problems
        return self._transactions, topics

    def commit_accepted(self, output: EpochOutput, newest: int, set_aside: Callable[[pa.Table], None]) -> None:
        self.close()
        topics = _topics(output)
        with raising_errors(self._client.servers) as problems:
            limits = ask_limits(self._client, topics)
            transactions = self._one_by_one(problems)
            if output.epoch <= max(transactions.sent(topics).values()):
                return
            (records,) = pa.Table.from_batches(self._batches(output), SCHEMA).combine_chunks().to_batches()
            refused = refused_rows(records, limits)
            while more := transactions.begin(records, refused):
                refused |= more
                # After a refused record, the broker may miss sequence numbers in the client's next transaction.
                self.close()
                transactions = self._one_by_one(problems)
            rows = sorted(refused)
            errors = pa.array([refused[row] for row in rows], pa.string())
            set_aside(pa.Table.from_batches([records]).take(rows).append_column("error", errors))
            transactions.arrive(topics, output.epoch)
            transactions.commit(topics, output.epoch)
        self.close()

    def _one_by_one(self, problems: list[Any]) -> _Transactions:
        """A new client whose batches have one record, so that a refused record fails no others."""
        transactions = self._transactions = _Transactions(self.name, self._client, 1)
        transactions.problems = problems
        return transactions

    def _batches(self, output: EpochOutput) -> Iterable[pa.RecordBatch]:
        for committable in output.committables:
            yield from unpack_columns(self._context.staged(committable["records"]))

    def close(self) -> None:
        transactions, self._transactions = self._transactions, None
        sent, self._sent = self._sent, None
        if transactions is not None:
            transactions.close(aborting=sent is not None)


def _of_callback(raised: KafkaException | SystemError) -> KafkaException:
    """The client's error. After a callback has raised a fatal error, the client still calls others, for which Python raises a
    SystemError."""
    from confluent_kafka import KafkaException

    error: BaseException | None = raised
    while isinstance(error, SystemError):
        error = error.__cause__
    if not isinstance(error, KafkaException):
        raise raised
    return error


def _topics(output: EpochOutput) -> list[str]:
    return sorted({topic for committable in output.committables for topic in committable["topics"]})


class _Transactions:
    """The transactional producer of one id, and the consumer group of its name. ``problems`` collects the clients' errors.

    Looks up the sent epochs once: nobody else can send output without fencing this producer, and then ``send`` fails.
    """

    def __init__(self, name: str, client: KafkaClient, batch_bytes: int) -> None:
        from confluent_kafka import Consumer, Producer

        self.problems: list[Any] = []
        self._sent: dict[str, int] = {}
        errors = {"error_cb": lambda error: self.problems.append(error)}
        self._consumer = Consumer({**shared_settings(client), **errors, "group.id": name, "enable.auto.commit": False})
        own = {"transactional.id": name, "batch.size": batch_bytes, "on_delivery": self._delivered}
        times = {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "retry.backoff.ms": _RETRY_MS}
        self._producer = Producer({**times, **producer_settings(client), **errors, **own})
        try:
            self._wait_for(self._producer.init_transactions)
        except BaseException:
            self.close(aborting=False)
            raise

    def _delivered(self, error: Any, _: Any) -> None:
        """Record why records are refused, which the transaction's own error may omit."""
        if error is not None and is_refusal(error) and len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(error)

    def had_trouble(self) -> bool:
        """Whether connections were lost since the last commit. After that, librdkafka 2.16 may wait forever."""
        self._producer.poll(0)
        self._consumer.poll(0)
        return bool(self.problems)

    def sent(self, topics: Sequence[str]) -> dict[str, int]:
        """The newest epoch that was sent to each topic, or 0."""
        from confluent_kafka import TopicPartition

        if unknown := [TopicPartition(topic, 0) for topic in topics if topic not in self._sent]:
            for partition in self._consumer.committed(unknown, timeout=ANSWER_SECONDS):
                self._sent[partition.topic] = max(partition.offset, 0)
        return {topic: self._sent[topic] for topic in topics}

    def send(self, batches: Iterable[pa.RecordBatch], topics: Sequence[str], epoch: int) -> None:
        """Send records in a transaction that ``commit`` ends."""
        from confluent_kafka import KafkaError, KafkaException

        self._producer.begin_transaction()
        try:
            for batch in batches:
                produce(self._producer, batch)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._STATE:  # the transaction has failed meanwhile
                self._send_offsets(topics, epoch)()  # raises the error of the transaction
            raise
        self.arrive(topics, epoch)

    def begin(self, records: pa.RecordBatch, skipped: Collection[int]) -> dict[int, str]:
        """Send records, except for ``skipped`` ones, in a transaction that ``arrive`` and ``commit`` end. If brokers refuse some,
        abort it and return them with the reasons; possibly not all of them, because the client stops sending after the first."""
        from confluent_kafka import KafkaException

        refused: dict[int, str] = {}

        def delivered(row: int, error: Any, _: Any) -> None:
            if error is not None and is_refusal(error):
                refused[row] = error.str()

        self._producer.begin_transaction()
        for row in range(len(records)):
            if row not in skipped:
                try:
                    produce(self._producer, records.slice(row, 1), partial(delivered, row))
                except KafkaException as error:
                    delivered(row, error.args[0], None)
                    self._producer.poll(0)
                    if not refused:
                        raise
                    if row not in refused:  # the client accepts no more
                        break
        progress_s = time.monotonic()
        while not refused and (waiting := len(self._producer)):
            if self._producer.flush(_STALL_SECONDS) < waiting:
                progress_s = time.monotonic()
            elif time.monotonic() > progress_s + ANSWER_SECONDS:
                raise SystemUnavailable(f"Kafka has accepted no record for {ANSWER_SECONDS:.0f} s; {waiting} are left")
        if refused:
            self._wait_for(self._producer.abort_transaction)
        return refused

    def arrive(self, topics: Sequence[str], epoch: int) -> None:
        """Add the epoch's number to the transaction, and wait until all of its records have arrived."""
        offsets = self._send_offsets(topics, epoch)

        def check() -> None:
            offsets()
            self._send_offsets(topics, epoch)()

        self._flush(check)
        offsets()

    def commit(self, topics: Sequence[str], epoch: int) -> None:
        """Commit the transaction with the epoch's records and number."""
        self._wait_for(self._producer.commit_transaction)
        self.problems = []
        self._sent.update(dict.fromkeys(topics, epoch))

    def _send_offsets(self, topics: Sequence[str], epoch: int) -> Callable[[], None]:
        """Begin to store the epoch's number in partition 0 of each topic, which every topic has. The result waits for the end."""
        from confluent_kafka import TopicPartition

        offsets = [TopicPartition(topic, 0, epoch) for topic in topics]
        return self._begin(self._producer.send_offsets_to_transaction, offsets, self._consumer.consumer_group_metadata())

    def _wait_for(self, call: Callable[..., None]) -> None:
        self._begin(call)()

    def _begin(self, call: Callable[..., None], *arguments: Any, seconds: float | None = None) -> Callable[[], None]:
        """Begin to call a method that takes a timeout, on its own thread; the result waits for its end. librdkafka up to 2.16 may
        ignore the timeout: if it got metadata while a broker was down (its issues 5456 and 5511), ``send_offsets_to_transaction``
        never returns. Then the thread stays behind with its client, which the next client fences."""
        from confluent_kafka import KafkaException

        outcome: Future[None] = Future()
        timeout_s = ANSWER_SECONDS if seconds is None else seconds

        def run() -> None:
            try:
                call(*arguments, timeout_s)
                outcome.set_result(None)
            except BaseException as error:
                outcome.set_exception(error)

        def wait() -> None:
            try:
                outcome.result(timeout_s + _LATE_SECONDS)
            except KafkaException:
                with suppress(KafkaException, SystemError):
                    self._producer.poll(0)  # delivery reports with the reasons of refused records
                raise
            except TimeoutError:
                raise SystemUnavailable(
                    f"Kafka's client did not return from {call.__name__} within {timeout_s + _LATE_SECONDS:.0f} s; a new one "
                    "tries again"
                ) from None

        threading.Thread(target=run, name=f"forkpoint-kafka-{call.__name__}", daemon=True).start()
        return wait

    def _flush(self, check: Callable[[], None]) -> None:
        """Wait until all records have arrived, as long as there is progress. ``check`` raises the error of a refused record,
        after which the client sends no others."""
        waiting, checked, progress_s = len(self._producer), False, time.monotonic()
        while waiting:
            before, waiting = waiting, self._producer.flush(min(_STALL_SECONDS, ANSWER_SECONDS))
            if waiting < before:
                checked, progress_s = False, time.monotonic()
            elif not checked:
                check()
                checked = True
            elif time.monotonic() >= progress_s + ANSWER_SECONDS:
                raise SystemUnavailable(f"Kafka has accepted no record for {ANSWER_SECONDS:.0f} s; {waiting} are left")

    def close(self, aborting: bool) -> None:
        """``aborting``: a transaction with records. Unless it ends, it holds back the topics' readers until its timeout, or until
        the next user of the id ends it."""
        from confluent_kafka import KafkaException

        if aborting and not self.problems:  # else brokers are probably away
            with suppress(KafkaException, SystemError, SystemUnavailable):
                self._begin(self._producer.abort_transaction, seconds=_ABORT_SECONDS)()
        self._consumer.close()
        # The producer is freed with this object: its close() would fail with a SystemError while brokers are down. The next user
        # of the id ends an unfinished transaction.
        self._producer.purge()
