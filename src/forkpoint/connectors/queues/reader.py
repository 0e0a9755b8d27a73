"""Reads received messages in a task."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pyarrow as pa

from forkpoint.connectors.formats.reading import FormatReader, OnParseError, Unread
from forkpoint.connectors.queues.messages import unpack
from forkpoint.contract.format import Deserialized
from forkpoint.contract.sink import staged
from forkpoint.contract.source import Elements, SourceBatch, SplitRange
from forkpoint.types.variables import T

log = logging.getLogger("forkpoint.queues")

_REMEDY = "Correct the format, or set on_parse_error='skip' to acknowledge and skip such messages"


class QueueReader(FormatReader[T]):
    """``deserialize`` makes elements of a batch of messages. ``name``: the source's, for messages. ``key``: the system's name for
    a message's key."""

    def __init__(
        self,
        name: str,
        key: str,
        state_root: str,
        deserialize: Callable[[pa.RecordBatch], Deserialized[T]],
        on_parse_error: OnParseError,
    ) -> None:
        super().__init__(on_parse_error, _REMEDY, log)
        self._name = name
        self._key = key
        self._state_root = state_root
        self._deserialize = deserialize

    def read(self, range: SplitRange) -> Iterator[Elements[T] | SourceBatch[T]]:
        if range.start >= range.end:
            return
        messages = unpack(staged(self._state_root, range.info))

        def unread(index: int) -> Unread:
            value, key = (messages.column(name)[index].as_py() for name in ("value", "key"))
            place = {self._key: key, "message": str(range.start + index)}
            return Unread(f"{self._name}: cannot read a message ({value[:80]!r})", place, value, key.encode())

        yield from self._found(self._deserialize(messages), len(messages), unread)
