"""A sink that collects elements for the test, with their timestamp and epoch."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from forkpoint.contract.sink import Sink, SinkBatch, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.runtime.exchange.batch import NO_TIMESTAMP_MS


@dataclass(frozen=True)
class Record:
    """An emitted element. ``timestamp`` in int ms, or None."""

    value: Any
    timestamp: int | None
    epoch: int
    subtask: int


def records_of(batch: SinkBatch[Any], epoch: int, subtask: int) -> list[Record]:
    values = batch.values
    stamps = [NO_TIMESTAMP_MS] * len(values) if batch.timestamps is None else batch.timestamps.tolist()
    return [
        Record(value, None if stamp == NO_TIMESTAMP_MS else stamp, epoch, subtask)
        for value, stamp in zip(values, stamps, strict=True)
    ]


# Written elements that are not committed yet: (job, uid) → token → elements. The manifest has only tokens, and each token is
# resolved once, so the test sees every element exactly once even if a commit is repeated.
_staged: dict[tuple[str, str], dict[str, list[Record]]] = {}


class TestSink(Sink):
    """Collects a job's elements within this process: ``values`` and ``records``, in the order of epoch and subtask."""

    __test__ = False  # not collected by pytest, despite its name

    def __init__(self) -> None:
        self.records: list[Record] = []

    @property
    def values(self) -> list[Any]:
        """The elements without timestamps."""
        return [record.value for record in self.records]

    def create_writer(self, context: SinkContext) -> SinkWriter:
        return _Writer(context)

    def commit(self, committables: list[JSON], epoch: int) -> None:
        for token in committables:
            staged = _staged.get((token["job"], token["uid"]), {})
            self.records.extend(staged.pop(token["token"], ()))

    def cleanup(self, uid: str, job: str, generation: int) -> None:
        staged = _staged.get((job, uid), {})
        for token in [token for token in staged if int(token.split("-")[0]) <= generation]:
            staged.pop(token, None)

    def __getstate__(self) -> dict[str, Any]:
        return {"records": []}


class _Writer(SinkWriter):
    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._records: list[Record] = []

    def write(self, batch: SinkBatch) -> None:
        self._records += records_of(batch, self._context.epoch, self._context.subtask)

    def prepare_commit(self) -> list[JSON]:
        token = f"{self._context.generation}-{uuid.uuid4().hex}"
        job, uid = self._context.job, self._context.uid
        _staged.setdefault((job, uid), {})[token] = self._records
        return [{"job": job, "uid": uid, "token": token}]
