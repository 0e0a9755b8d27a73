"""Returns elements to the program that started the job, for ``execute_and_collect``."""

from __future__ import annotations

import base64
from collections import deque
from typing import Any

import msgspec

from forkpoint.connectors.base import JSON, Sink, SinkBatch, SinkContext, SinkWriter
from forkpoint.types import TypeInformation, Types, from_description, type_of

_packer = msgspec.msgpack.Encoder()
_unpacker = msgspec.msgpack.Decoder(list[bytes])


class CollectSink(Sink):
    """Collects the elements of each committed epoch in the driver's process, where ``take`` returns them.

    Elements travel in the manifest, encoded by ``type`` (a ``TypeInformation`` or annotation; by default the stream's type),
    so this is for results that fit into memory. A commit that is repeated within the process collects its elements once. If
    the process dies, the last epoch's elements are collected again at the restart; earlier ones that were not taken are lost.
    """

    def __init__(self, type: Any = None) -> None:
        self._type = None if type is None else type_of(type)
        self._ready: deque[Any] = deque()
        self._collected: int | None = None

    def create_writer(self, context: SinkContext) -> SinkWriter:
        return _CollectWriter(self._type)

    def commit(self, committables: list[JSON], epoch: int) -> None:
        if epoch == self._collected:
            return
        elements: list[Any] = []
        for committable in committables:
            # The committable has the type, as the driver's sink does not know the stream's type.
            type = self._type or from_description(committable["type"])
            elements += map(type.decode, _unpacker.decode(base64.b64decode(committable["elements"])))
        self._ready.extend(elements)
        self._collected = epoch

    def cleanup(self, uid: str, job: str, generation: int) -> None:
        self._collected = None  # a new run may reuse epoch numbers

    def take(self) -> list[Any]:
        """All elements collected since the last call, in the order of epoch and subtask. Thread-safe."""
        taken = []
        while True:
            try:
                taken.append(self._ready.popleft())
            except IndexError:
                return taken

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need the description only.
        return {"_type": self._type, "_ready": deque(), "_collected": None}


class _CollectWriter(SinkWriter):
    def __init__(self, type: TypeInformation | None) -> None:
        self._type = type
        self._encoded: list[bytes] = []

    def write(self, batch: SinkBatch) -> None:
        if self._type is None:
            self._type = batch.type or Types.ANY()
        self._encoded += map(self._type.encode, batch.values)

    def prepare_commit(self) -> list[JSON]:
        if not self._encoded or self._type is None:
            return []
        elements = base64.b64encode(_packer.encode(self._encoded)).decode("ascii")
        return [{"type": self._type.describe(), "elements": elements}]
