"""Access to a state of all of a subtask's keys, including those without elements in the epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forkpoint.functions import StateDescriptor
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.state import decode_state_key, sid_range


class EveryKey:
    """Applies functions to a state of every key, within one epoch.

    The epoch's own keys are reached through the operator's backend. For the others, each state gets a backend for the rest
    of the epoch, so that the next call sees the changes of the last.
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
        """A backend for the keys that have entries in the store and no elements in the epoch."""
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
            for handle in backend.handles:  # without sweeping, which the operator's backend does
                handle.collect(log)


def _apply(backend: KeyedBackend, handle: Any, function: Callable[[Any, Any], None]) -> None:
    for index, key in enumerate(backend.keys):
        backend.enter(index)
        if handle.alive():
            function(key, handle)
        backend.leave()
