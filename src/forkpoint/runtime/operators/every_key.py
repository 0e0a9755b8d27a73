"""A state of all keys of a subtask, also of those of which the epoch has no element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forkpoint.functions import StateDescriptor
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.state import decode_state_key, sid_range


class EveryKey:
    """Applies functions to a state of every key, within one epoch.

    The epoch's own keys are reached through their operator's backend. For the others each state gets one of its own, for
    the rest of the epoch, so that what one call changes is seen by the next.
    """

    def __init__(self, backend: KeyedBackend) -> None:
        self._backend = backend
        self._others: dict[str, KeyedBackend] = {}

    def apply(self, descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        _apply(self._backend, self._backend.get(descriptor), function)
        others = self._others.get(descriptor.name)
        if others is None:
            others = self._others[descriptor.name] = self._rest(descriptor)
        _apply(others, others.get(descriptor), function)

    def _rest(self, descriptor: StateDescriptor) -> KeyedBackend:
        """A backend of the keys that have something stored and are none of the epoch's."""
        own, sid = self._backend, self._backend.sid(descriptor.name)
        found: dict[bytes, None] = {}
        for group in range(*own.groups):
            found.update((decode_state_key(entry).key, None) for entry, _ in own.store.scan(*sid_range(group, sid)))
        for key in own.key_bytes:
            found.pop(key, None)
        backend = KeyedBackend(own.uid, own.key_type, own.max_parallelism, own.store)
        backend.groups = own.groups
        backend.element_time = own.element_time
        backend.get(descriptor)
        backend.begin(list(map(own.key_type.decode, found)), own.processing_time_ms, own.watermark)
        return backend

    def collect(self, log: ChangeLog) -> None:
        for backend in self._others.values():
            for handle in backend.handles:  # sweeping is done where the state belongs
                handle.collect(log)


def _apply(backend: KeyedBackend, handle: Any, function: Callable[[Any, Any], None]) -> None:
    for index, key in enumerate(backend.keys):
        backend.enter(index)
        if handle.alive():
            function(key, handle)
        backend.leave()
