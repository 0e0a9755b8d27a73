"""Operator state: a subtask's lists, with one entry per element so that a restore can redistribute them.

A ``CheckpointedFunction`` accesses it through the contexts of this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from forkpoint.checkpoint.states import StateInfo, state_id
from forkpoint.errors import GraphError
from forkpoint.functions import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateStore,
)
from forkpoint.runtime.state.broadcast_state import BroadcastMap
from forkpoint.runtime.state.guard import Guard
from forkpoint.runtime.state.keyed_backend import ChangeLog
from forkpoint.state import Store, operator_key, operator_range


class OperatorList(ListState[Any]):
    """One list of one subtask, in memory while the job runs."""

    def __init__(self, store: Store, uid: str, subtask: int, descriptor: ListStateDescriptor[Any]) -> None:
        self.sid = state_id(uid, descriptor.name)
        self._guard = Guard(descriptor.value_type, f"operator {uid!r}, state {descriptor.name!r}")
        self._subtask = subtask
        self._stored = [value for _, value in store.scan(*operator_range(self.sid, subtask))]
        self._kept = list(map(self._guard.decoded, self._stored))

    def get(self) -> list[Any]:
        return self._guard.give_all(self._kept)

    def add(self, value: Any) -> None:
        self._kept.append(self._guard.keep(value))

    def add_all(self, values: Iterable[Any]) -> None:
        self._kept.extend(self._guard.keep_all(values))

    def update(self, values: Iterable[Any]) -> None:
        self._kept = self._guard.keep_all(values)

    def clear(self) -> None:
        self._kept = []

    def collect(self, log: ChangeLog) -> None:
        encoded = list(map(self._guard.encoded, self._kept))
        for index, (new, old) in enumerate(zip_longest(encoded, self._stored)):
            if new != old:
                log.keys.append(operator_key(self.sid, self._subtask, index))
                log.values.append(new)
        self._stored = encoded


class OperatorState(OperatorStateStore, FunctionInitializationContext):
    """All operator state of one function on one subtask."""

    def __init__(self, store: Store, uid: str, subtask: int, *, restored: bool) -> None:
        self._store = store
        self._uid = uid
        self._subtask = subtask
        self._restored = restored
        self._lists: dict[str, OperatorList] = {}
        self._maps: list[BroadcastMap] = []
        self.records: list[StateInfo] = []

    def is_restored(self) -> bool:
        return self._restored

    def get_operator_state_store(self) -> OperatorStateStore:
        return self

    def get_list_state(self, descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        return self._list(descriptor, "operator-list")

    def get_union_list_state(self, descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        return self._list(descriptor, "operator-union")

    def _list(self, descriptor: ListStateDescriptor[Any], kind: str) -> ListState[Any]:
        if not isinstance(descriptor, ListStateDescriptor):
            raise GraphError(f"operator {self._uid!r}: operator state takes a ListStateDescriptor, not {descriptor!r}")
        found = self._lists.get(descriptor.name)
        if found is None:
            found = self._lists[descriptor.name] = OperatorList(self._store, self._uid, self._subtask, descriptor)
            self.records.append(StateInfo.of(self._uid, descriptor.name, kind, None, descriptor.value_type))
        return found

    def broadcast(self, descriptor: MapStateDescriptor[Any, Any]) -> BroadcastMap:
        """A map that is the same on every subtask."""
        state = BroadcastMap(self._store, self._uid, self._subtask, descriptor)
        self._maps.append(state)
        self.records.append(
            StateInfo.of(self._uid, descriptor.name, "broadcast", None, descriptor.value_type, descriptor.key_type)
        )
        return state

    def collect(self) -> ChangeLog:
        log = ChangeLog()
        for elements in self._lists.values():
            elements.collect(log)
        for entries in self._maps:
            entries.collect(log)
        return log


@dataclass(frozen=True)
class SnapshotContext(FunctionSnapshotContext):
    epoch: int
    processing_time_ms: int

    def get_checkpoint_id(self) -> int:
        return self.epoch

    def get_checkpoint_timestamp(self) -> int:
        return self.processing_time_ms
