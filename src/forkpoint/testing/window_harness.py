"""A harness for windows, with access to their contents and timers."""

from __future__ import annotations

from typing import Any

from forkpoint.errors import GraphError
from forkpoint.functions import TimeDomain
from forkpoint.runtime.event_time.timers import EVENT_TIMERS, PROCESSING_TIMERS, timer_ms
from forkpoint.runtime.windows.elements import window_encoder
from forkpoint.runtime.windows.merging_windows import MERGING_WINDOWS
from forkpoint.runtime.windows.spec import CONTENTS, WindowSpec
from forkpoint.state import decode_state_key, decode_timer_key
from forkpoint.testing.function_harnesses import OperatorHarness
from forkpoint.types import TypeInformation, Types

_CHUNK_BYTES = 8  # lists are stored in chunks, whose namespaces end with the epoch


class WindowHarness(OperatorHarness):
    """The windows of a keyed stream: ``WindowHarness(lambda stream: stream.key_by("user").window(…).reduce(…))``.

    The timestamps in ``records`` are the maximum timestamps of the windows. Other arguments: see OperatorHarness. GraphError if
    ``build`` adds anything but windows.
    """

    def __init__(self, build: Any, **more: Any) -> None:
        super().__init__(build, **more)
        spec = self._operator.spec
        if not isinstance(spec, WindowSpec):
            raise GraphError(f"a WindowHarness is for windows, but the function added {self._operator.name!r}")
        self._spec = spec
        self._decode = window_encoder(spec)[1]

    def contents(self) -> dict[tuple[Any, Any], Any]:
        """The content of each window, by (key, window): its elements, or the current reduction or accumulator.

        With an evictor, elements are pairs with their timestamps.
        """
        found: dict[tuple[Any, Any], Any] = {}
        listed = self._spec.contents == "list"
        merging = [(decode_state_key(entry), raw) for entry, raw in self._entries(MERGING_WINDOWS)]
        windows = {(entry.key, raw): entry.namespace for entry, raw in merging}  # by key and the window that stores the state
        type = Types.LIST(self._spec.contents_type) if listed else self._spec.contents_type
        for entry, raw in self._entries(CONTENTS):
            key = decode_state_key(entry)
            space = key.namespace[:-_CHUNK_BYTES] if listed else key.namespace
            address = self._key_type.decode(key.key), self._decode(windows.get((key.key, space), space))
            value = type.decode(raw)
            found[address] = [*found[address], *value] if address in found else value
        return found

    @property
    def window_count(self) -> int:
        """The number of windows with content, over all keys."""
        return len(self.contents())

    def window_timers(self) -> list[tuple[int, Any, Any, TimeDomain]]:
        """Pending timers as (time in ms, key, window, domain), ordered by time."""
        found = []
        for name, domain in ((EVENT_TIMERS, TimeDomain.EVENT_TIME), (PROCESSING_TIMERS, TimeDomain.PROCESSING_TIME)):
            for entry, _ in self._entries(name):
                timer = decode_timer_key(entry)
                key, window = self._key_type.decode(timer.key), self._decode(timer.namespace)
                found.append((timer_ms(timer.ts_ms), key, window, domain))
        return sorted(found, key=lambda timer: timer[0])

    @property
    def _key_type(self) -> TypeInformation:
        key = self._operator.key
        assert key is not None
        assert key.key_type is not None
        return key.key_type
