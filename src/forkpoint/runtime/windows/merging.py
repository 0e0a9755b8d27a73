"""Which windows of a key are in flight where windows merge, and under which window each keeps its contents.

When windows become one, the contents of the first stay where they are: so the window that a state is kept under and the
window that it belongs to are two things, and this map leads from the one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from forkpoint.functions import MapStateDescriptor, MergingWindowAssigner
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation

MERGING_WINDOWS = "merging-windows"

OnMerge = Callable[[Any, list[Any], Any, list[Any]], None]
"""Called with the merged window, those that went into it, the window its state is under, and those of the others' states."""


def merging_windows(window_type: TypeInformation) -> MapStateDescriptor[Any, Any]:
    """The state in which the map is saved."""
    descriptor = MapStateDescriptor[Any, Any](MERGING_WINDOWS, window_type, window_type)
    descriptor.value_type = window_type  # each window is kept under another, never under none
    return descriptor


class _Merges:
    def __init__(self) -> None:
        self.found: list[tuple[Any, list[Any]]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.found.append((merge_result, list(to_be_merged)))


class MergingWindows:
    """The windows in flight of the key at hand: a map state of which a key's entries are always read together."""

    def __init__(self, backend: KeyedBackend, assigner: MergingWindowAssigner, window_type: TypeInformation) -> None:
        self._backend = backend
        self._assigner = assigner
        self._type = window_type
        self.sid = backend.sid(MERGING_WINDOWS)
        self._prefixes: list[bytes] = []
        self._saved: dict[int, dict[Any, Any]] = {}
        self._maps: dict[int, dict[Any, Any]] = {}
        self._index = 0
        backend.record("map", MERGING_WINDOWS, window_type, window_type)
        backend.add(self)

    # -- the state

    def begin(self) -> None:
        self._prefixes = self._backend.prefixes(self.sid)
        self._saved, self._maps = {}, {}

    def enter(self, index: int) -> None:
        self._index = index

    def leave(self, index: int) -> None:
        pass

    def _windows(self) -> dict[Any, Any]:
        windows = self._maps.get(self._index)
        if windows is None:
            prefix, decode = self._prefixes[self._index], self._type.decode
            saved = {decode(name[len(prefix) :]): decode(raw) for name, raw in self._backend.scan(prefix)}
            self._saved[self._index] = saved
            windows = self._maps[self._index] = dict(saved)
        return windows

    def collect(self, log: ChangeLog) -> None:
        encode = self._type.encode
        for index, windows in self._maps.items():
            prefix, saved = self._prefixes[index], self._saved[index]
            for window in saved.keys() - windows.keys():
                log.keys.append(prefix + encode(window))
                log.values.append(None)
            for window, state_window in windows.items():
                if saved.get(window) != state_window:
                    log.keys.append(prefix + encode(window))
                    log.values.append(encode(state_window))
        self._saved, self._maps = {}, {}

    # -- what the operator asks

    def state_window(self, window: Any) -> Any:
        """The window that a window's contents are kept under; None where it is not in flight."""
        return self._windows().get(window)

    def retire(self, window: Any) -> None:
        self._windows().pop(window, None)

    def add(self, new: Any, on_merge: OnMerge) -> Any:
        """Take a window in; returns the one in flight that it is now part of."""
        windows = self._windows()
        if new in windows:
            return new
        merges = _Merges()
        self._assigner.merge_windows([*sorted(windows), new], merges)
        result, merged_in = new, False
        for merged, members in merges.found:
            old = [m for m in members if m != new]
            if len(old) < len(members):
                result, merged_in = merged, True
            state_window = [windows.pop(m) for m in old]
            windows[merged] = state_window[0]
            if old != [merged]:  # else the new window lies within one that is there
                on_merge(merged, old, state_window[0], state_window[1:])
        if not merged_in:
            windows[new] = new
        return result
