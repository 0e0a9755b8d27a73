"""Reads messages that were received, in a task."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pyarrow as pa

from forkpoint.connectors.base import Elements, SourceReader, SplitRange
from forkpoint.connectors.building import OnParseError
from forkpoint.connectors.formats.base import Deserialized
from forkpoint.connectors.queues.messages import unpack
from forkpoint.connectors.staging import staged
from forkpoint.errors import RecordParseError
from forkpoint.types.variables import T

log = logging.getLogger("forkpoint.queues")


class QueueReader(SourceReader[T]):
    """``deserialize``: a batch of messages to elements. ``name``: of the source, for people."""

    def __init__(
        self, name: str, state_root: str, deserialize: Callable[[pa.RecordBatch], Deserialized[T]],
        on_parse_error: OnParseError,
    ) -> None:  # fmt: skip
        self._name = name
        self._state_root = state_root
        self._deserialize = deserialize
        self._fails = on_parse_error == "fail"

    def read(self, range: SplitRange) -> Iterator[Elements[T]]:
        if range.start >= range.end:
            return
        messages = unpack(staged(self._state_root, range.info))
        deserialized = self._deserialize(messages)
        for bad in deserialized.bad:
            start = messages.column("value")[bad.index].as_py()[:80]
            message = f"{self._name}: cannot read a message ({start!r}): {bad.problem}"
            if self._fails:
                raise RecordParseError(
                    f"{message}. Correct the format, or set on_parse_error='skip' to acknowledge and skip such messages"
                )
            log.warning("%s; skipped", message)
        if len(deserialized.elements):
            yield deserialized.elements
