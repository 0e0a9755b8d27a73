"""A sink that hands elements to the test as they are, with their time and epoch."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from forkpoint.connectors import Sink, SinkBatch, SinkContext, SinkWriter
from forkpoint.connectors.base import JSON
from forkpoint.runtime.exchange.batch import NO_TIMESTAMP_MS


@dataclass(frozen=True)
class Record:
    """An element that came out. ``timestamp`` in int ms, None where it has none."""

    value: Any
    timestamp: int | None
    epoch: int
    subtask: int


# Elements that were written but not yet committed: (job, uid) → token → elements. Only tokens go to the manifest, and
# each is handed out once, so the test sees every element exactly once however often a commit is repeated.
_staged: dict[tuple[str, str], dict[str, list[Record]]] = {}


class TestSink(Sink):
    """Collects a job's elements within this process: ``values`` and ``records``, in the order of epoch and subtask."""

    __test__ = False  # not a class of tests, whatever pytest makes of its name

    def __init__(self) -> None:
        self.records: list[Record] = []

    @property
    def values(self) -> list[Any]:
        """The elements alone."""
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
        epoch, subtask = self._context.epoch, self._context.subtask
        stamps = [NO_TIMESTAMP_MS] * len(batch.values) if batch.timestamps is None else batch.timestamps.tolist()
        self._records.extend(
            Record(value, None if stamp == NO_TIMESTAMP_MS else stamp, epoch, subtask)
            for value, stamp in zip(batch.values, stamps, strict=True)
        )

    def prepare_commit(self) -> list[JSON]:
        token = f"{self._context.generation}-{uuid.uuid4().hex}"
        place = (self._context.job, self._context.uid)
        _staged.setdefault(place, {})[token] = self._records
        return [{"job": place[0], "uid": place[1], "token": token}]
