"""Which windows of a key are in flight where windows merge, and under which window each keeps its contents.

When windows become one, the contents of the first stay where they are: so the window that a state is kept under and the
window that it belongs to are two things, and this map leads from the one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from forkpoint.functions import MapStateDescriptor, MergingWindowAssigner
from forkpoint.runtime.keyed_state import KeyedBackend
from forkpoint.types import TypeInformation

MERGING_WINDOWS = "merging-windows"

OnMerge = Callable[[Any, list[Any], Any, list[Any]], None]
"""Called with the merged window, those that went into it, the window its state is under, and those of the others' states."""


def merging_windows(window_type: TypeInformation) -> MapStateDescriptor[Any, Any]:
    return MapStateDescriptor(MERGING_WINDOWS, window_type, window_type)


class _Merges:
    def __init__(self) -> None:
        self.found: list[tuple[Any, list[Any]]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.found.append((merge_result, list(to_be_merged)))


class MergingWindows:
    """The windows in flight of the key at hand."""

    def __init__(self, backend: KeyedBackend, assigner: MergingWindowAssigner, window_type: TypeInformation) -> None:
        self._states = backend.get(merging_windows(window_type))
        self._assigner = assigner

    def state_window(self, window: Any) -> Any:
        """The window that a window's contents are kept under; None where it is not in flight."""
        return self._states.get(window)

    def retire(self, window: Any) -> None:
        self._states.remove(window)

    def add(self, new: Any, on_merge: OnMerge) -> Any:
        """Take a window in; returns the one in flight that it is now part of."""
        states = self._states
        if states.contains(new):
            return new
        merges = _Merges()
        self._assigner.merge_windows([*sorted(states.keys()), new], merges)
        result, merged_in = new, False
        for merged, members in merges.found:
            old = [m for m in members if m != new]
            if len(old) < len(members):
                result, merged_in = merged, True
            kept_under = [states.get(m) for m in old]
            for member in old:
                states.remove(member)
            states.put(merged, kept_under[0])
            if old != [merged]:  # else the new window lies within one that is there
                on_merge(merged, old, kept_under[0], kept_under[1:])
        if not merged_in:
            states.put(new, new)
        return result
