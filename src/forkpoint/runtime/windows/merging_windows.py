"""The merging windows of a key, with their state windows, under which their contents are saved.

When windows merge, the contents stay under the first window. So a window and its state window can differ. This map gives the
state window of a window, like Flink's MergingWindowSet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from forkpoint.functions import MapState, MapStateDescriptor, MergingWindowAssigner
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation

MERGING_WINDOWS = "merging-windows"

OnMerge = Callable[[Any, list[Any], Any, list[Any]], None]
"""Called with the merged window, its members, its state window, and the other state windows of the members."""


def merging_windows(window_type: TypeInformation) -> MapStateDescriptor[Any, Any]:
    """The state that holds the map."""
    descriptor = MapStateDescriptor[Any, Any](MERGING_WINDOWS, window_type, window_type)
    descriptor.value_type = window_type  # never None
    return descriptor


class _Merges(list[tuple[Any, list[Any]]]):
    """Merged windows with their members."""

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.append((merge_result, list(to_be_merged)))


class MergingWindows:
    """The current key's windows.

    Each element needs all of them, so they stay objects while the key is current; leaving the key writes the changes.
    """

    def __init__(self, backend: KeyedBackend, assigner: MergingWindowAssigner, window_type: TypeInformation) -> None:
        self._assigner = assigner
        self._state: MapState[Any, Any] = backend.get(merging_windows(window_type))
        self._saved: dict[Any, Any] = {}
        self._current: dict[Any, Any] | None = None
        backend.add(self)

    # -- the state

    def begin(self) -> None:
        pass

    def enter(self, index: int) -> None:
        self._current = None

    def leave(self, index: int) -> None:
        windows, saved = self._current, self._saved
        if windows is None or windows == saved:
            return
        for window in saved.keys() - windows.keys():
            self._state.remove(window)
        for window, state_window in windows.items():
            if saved.get(window) != state_window:
                self._state.put(window, state_window)

    def collect(self, log: ChangeLog) -> None:
        pass

    def _windows(self) -> dict[Any, Any]:
        if self._current is None:
            self._saved = dict(self._state.items())
            self._current = dict(self._saved)
        return self._current

    # -- for the operator

    def state_window(self, window: Any) -> Any:
        """The state window of a window; None for a window that is not in the map."""
        return self._windows().get(window)

    def retire(self, window: Any) -> None:
        self._windows().pop(window, None)

    def add(self, new: Any, on_merge: OnMerge) -> Any:
        """Add a window, and return the window that contains it after merges."""
        windows = self._windows()
        if new in windows:
            return new
        merges = _Merges()
        self._assigner.merge_windows([*sorted(windows), new], merges)
        result, merged_in = new, False
        for merged, members in merges:
            old = [m for m in members if m != new]
            if len(old) < len(members):
                result, merged_in = merged, True
            state_windows = [windows.pop(m) for m in old]
            windows[merged] = state_windows[0]
            if old != [merged]:  # else an existing window contains the new one
                on_merge(merged, old, state_windows[0], state_windows[1:])
        if not merged_in:
            windows[new] = new
        return result
