"""Puts an epoch's records after its commit, at least once.

Neither Kinesis nor Firehose has transactions, conditional writes, or a way to store an epoch number with the records. After a
crash in the middle of an epoch, it is unknown which of its records have arrived, so all are put again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.contract.sink import Committer, CommitterContext
from forkpoint.errors import JobFailed, SystemUnavailable
from forkpoint_kinesis.errors import IncompleteAnswer, forkpoint_error
from forkpoint_kinesis.outgoing import unpack
from forkpoint_kinesis.put_queue import Limits, Outgoing, Queue

log = logging.getLogger("forkpoint.kinesis")

PATIENCE_S = 10.0  # without an accepted record, before the commit gives up; it is retried later
RETRY_S = 0.1
LONGEST_RETRY_S = 2.0


@dataclass(frozen=True)
class Refusal:
    """Why a record was not accepted."""

    code: str
    message: str


def refusals(answers: Sequence[Any], sent: int) -> Mapping[int, Refusal]:
    """The refused records of a response, by index. Raises IncompleteAnswer if the response lacks records."""
    if len(answers) != sent:
        raise IncompleteAnswer(f"a response was cut off: it covers {len(answers)} of {sent} records")
    return {
        n: Refusal(each["ErrorCode"], each.get("ErrorMessage", "")) for n, each in enumerate(answers) if each.get("ErrorCode")
    }


class Target(Protocol):
    """A stream to put records to. ``what``, ``place`` and ``remedy`` are for messages. ``ordered``: whether to keep the order of
    a key's records."""

    @property
    def what(self) -> str: ...
    @property
    def place(self) -> str: ...
    @property
    def remedy(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def ordered(self) -> bool: ...
    @property
    def fails_on_error(self) -> bool: ...

    def check(self) -> None:
        """Raise the client's error if the stream does not exist."""

    def put(self, records: Sequence[Outgoing]) -> Mapping[int, Refusal]:
        """Put records with one request. Returns the refused records by index."""

    def outgoing(self, key: str | None, data: bytes, id: str) -> Outgoing:
        """The record to put. ``id``: stays the same if the record is put again."""


@dataclass
class _Epoch:
    """An epoch's records and the queue of those still to be put. Empty if all have been accepted."""

    output: EpochOutput
    records: list[Outgoing]
    queue: Queue


class PutCommitter(Committer):
    """Puts a group's output."""

    def __init__(self, context: CommitterContext, target: Target) -> None:
        self._context = context
        self._target = target

    def commit(self, output: EpochOutput, newest: int) -> None:
        epoch = _last.take(self._context, output) or self._epoch(output)
        try:
            self._put(epoch)
            epoch.records.clear()
        finally:
            _last.keep(self._context, epoch)

    def _epoch(self, output: EpochOutput) -> _Epoch:
        target, records, orders = self._target, list[Outgoing](), list[str]()
        for committable in output.committables:
            # Only output in the manifest is put, so a record's place in it identifies the record.
            prefix = f"{self._context.incarnation}-{output.epoch}-{committable['subtask']}"
            for index, (key, data) in enumerate(unpack(self._context.staged(committable["records"]))):
                records.append(target.outgoing(key, data, f"{prefix}-{index}"))
                orders.append(key or "")
        return _Epoch(output, records, Queue(records, orders if target.ordered else None, target.limits))

    def _put(self, epoch: _Epoch) -> None:
        target, pause_s, since = self._target, RETRY_S, time.monotonic()
        while sent := epoch.queue.next():
            try:
                refused = target.put([epoch.records[index] for index in sent])
            except Exception as error:
                epoch.queue.answered(sent, sent)
                trouble = forkpoint_error(error, target.what, target.place, target.remedy)
                if not isinstance(trouble, SystemUnavailable):
                    raise trouble from error
            else:
                epoch.queue.answered(sent, [sent[index] for index in refused])
                if len(refused) < len(sent):
                    since = time.monotonic()
                if not refused:
                    pause_s = RETRY_S
                    continue
                first = next(iter(refused.values()))
                problem = f"{len(refused)} of {len(sent)} records were refused ({first.code}: {first.message})"
                if target.fails_on_error:
                    raise JobFailed(f"{target.what}: {problem}; without set_fail_on_error(True), they would be put again")
                log.info("%s: %s; trying again", target.what, problem)
                trouble = SystemUnavailable(f"{target.what}: {problem}; if this persists, add shards or raise the quota")
            if time.monotonic() > since + PATIENCE_S:
                raise trouble
            time.sleep(pause_s * random.uniform(0.5, 1))
            pause_s = min(LONGEST_RETRY_S, 2 * pause_s)


class _Last:
    """The epoch that this process put last, by group. If a group fails, the whole epoch is committed again: that group continues
    with the records still to be put, and the other groups have none left."""

    def __init__(self) -> None:
        self._epochs: dict[CommitterContext, _Epoch] = {}
        self._lock = Lock()

    def take(self, context: CommitterContext, output: EpochOutput) -> _Epoch | None:
        with self._lock:
            found = self._epochs.pop(context, None)
        return found if found is not None and found.output == output else None

    def keep(self, context: CommitterContext, epoch: _Epoch) -> None:
        with self._lock:
            self._epochs[context] = epoch


_last = _Last()
