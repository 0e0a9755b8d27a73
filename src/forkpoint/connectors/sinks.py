"""The small sinks: collect, print and discard."""

from __future__ import annotations

import base64
import sys
from collections import deque
from typing import Any, Self

import msgspec

from forkpoint.contract.sink import Sink, SinkBatch, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.decoders import msgpack_decoder
from forkpoint.types import TypeInformation, Types, from_description, type_of

_packer = msgspec.msgpack.Encoder()
_unpack = msgpack_decoder(list[bytes])


class CollectSink(Sink):
    """Collects the elements of each committed epoch in the driver's process, where ``take`` returns them.

    Elements are part of the manifest, encoded by ``type`` (a ``TypeInformation`` or annotation; by default the stream's type),
    and are restored as its classes, or by `Types.ANY()` for an untyped stream. So the sink is for results that fit into
    memory. A commit repeated within the process collects its elements once. If the process dies, the restart collects the last
    epoch's elements again; earlier elements that were not taken are lost.
    """

    def __init__(self, type: Any = None) -> None:
        self._type = None if type is None else type_of(type)
        # The types of its streams, with their classes. An untyped stream's values determine their classes.
        self._known: dict[TypeInformation, TypeInformation] = {Types.ANY(): Types.ANY()}
        self._ready: deque[Any] = deque()
        self._collected: int | None = None
        self._begins = False  # a new run, which may reuse epoch numbers

    def for_job(self, job: str) -> Self:
        self._begins = True
        return self

    def check_type(self, type: TypeInformation[Any]) -> None:
        self._known[type] = type

    def create_writer(self, context: SinkContext) -> SinkWriter:
        return _CollectWriter(self._type)

    def commit(self, committables: list[JSON], epoch: int) -> None:
        if epoch == self._collected:
            return
        elements: list[Any] = []
        for committable in committables:
            described = from_description(committable["type"])
            type = self._type or self._known.get(described, described)
            elements += map(type.decode, _unpack(base64.b64decode(committable["elements"])))
        self._ready.extend(elements)
        self._collected = epoch

    def cleanup(self, uid: str, job: str, generation: int) -> None:
        if self._begins:  # a restart cleans up, too
            self._collected, self._begins = None, False

    def take(self) -> list[Any]:
        """All elements collected since the last call, in the order of epoch and subtask. Thread-safe."""
        taken = []
        while True:
            try:
                taken.append(self._ready.popleft())
            except IndexError:
                return taken

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need only the type.
        return {"_type": self._type, "_known": {}, "_ready": deque(), "_collected": None, "_begins": False}


class _CollectWriter(SinkWriter):
    def __init__(self, type: TypeInformation | None) -> None:
        self._type = type
        self._encoded: list[tuple[TypeInformation, list[bytes]]] = []

    def write(self, batch: SinkBatch) -> None:
        type = self._type or batch.type or Types.ANY()
        if not self._encoded or self._encoded[-1][0] != type:  # a union has streams of several types
            self._encoded.append((type, []))
        self._encoded[-1][1].extend(map(type.encode, batch.values))

    def prepare_commit(self) -> list[JSON]:
        return [
            {"type": type.describe(), "elements": base64.b64encode(_packer.encode(encoded)).decode("ascii")}
            for type, encoded in self._encoded
            if encoded
        ]


class PrintSink(Sink):
    """Prints each element's ``repr`` on a line, after ``prefix`` and ``>``, in the driver's process once its epoch is committed.

    A failed epoch prints nothing, a repeated one prints once. But standard output cannot take part in a commit: if the driver
    dies between the manifest and the last line, the epoch is printed again after the restart. The text is part of the epoch's
    manifest: the sink is for viewing results, not for moving data.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = f"{prefix}> " if prefix else ""
        self._printed: int | None = None

    def create_writer(self, context: SinkContext) -> SinkWriter:
        return _PrintWriter(self._prefix)

    def commit(self, committables: list[JSON], epoch: int) -> None:
        if epoch == self._printed:  # a restart within this process repeats the last commit
            return
        self._printed = epoch
        sys.stdout.write("".join(line + "\n" for lines in committables for line in lines))
        sys.stdout.flush()

    def cleanup(self, uid: str, job: str, generation: int) -> None:
        self._printed = None  # a new run may reuse epoch numbers


class _PrintWriter(SinkWriter):
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lines: list[str] = []

    def write(self, batch: SinkBatch) -> None:
        prefix = self._prefix
        self._lines += [prefix + text for text in map(repr, batch.values)] if prefix else map(repr, batch.values)

    def prepare_commit(self) -> list[JSON]:
        return [self._lines] if self._lines else []


class DiscardSink(Sink):
    """Drops every element without decoding it. For benchmarks, and for jobs whose result is their state."""

    ordered = False

    def create_writer(self, context: SinkContext) -> SinkWriter:
        return _DiscardWriter()


class _DiscardWriter(SinkWriter):
    def write(self, batch: SinkBatch) -> None:
        pass

    def prepare_commit(self) -> list[JSON]:
        return []
