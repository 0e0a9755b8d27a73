"""Keyed state of one operator on one subtask: handles bound to the current key, with a write-back cache for the epoch.

All keys of an epoch are known before the first element is processed, so each state reads them with one call. The end of the
epoch encodes each changed entry once and returns it for the changelog; the store advances only after the commit of the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from forkpoint.checkpoint.states import StateInfo, state_id
from forkpoint.errors import GraphError, RestoreRefused, UserFunctionError
from forkpoint.functions import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from forkpoint.runtime.state.guard import Guard
from forkpoint.runtime.state.key_scope import KeyScope
from forkpoint.runtime.state.lists import ListHandle
from forkpoint.runtime.state.maps import MapHandle
from forkpoint.runtime.state.namespace import Namespace
from forkpoint.runtime.state.ttl import Expiry, Sweeper, TtlGuard
from forkpoint.runtime.state.values import value_handle
from forkpoint.state import Store, encode_keys, key_group, prefix_stop, state_keys
from forkpoint.types import TypeInformation, same_bytes
from forkpoint.types.wire import shown


@dataclass
class ChangeLog:
    """The changes of one operator in one epoch, in order: the last change of a key wins."""

    keys: list[bytes] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)

    def add(self, keys: Iterable[bytes], values: Iterable[bytes | None]) -> None:
        self.keys.extend(keys)
        self.values.extend(values)

    def delete(self, keys: Sequence[bytes]) -> None:
        self.add(keys, [None] * len(keys))


class Handle(Protocol):
    """The entries of one state in an epoch. ``begin`` reads the entries of the epoch's keys. ``enter`` and ``leave`` bind the
    handle to one key at a time, by index; a key may be entered again. ``collect`` appends the changes since ``begin``."""

    def begin(self) -> None: ...

    def enter(self, index: int) -> None: ...

    def leave(self, index: int) -> None: ...

    def collect(self, log: ChangeLog) -> None: ...


def check_known(record: StateInfo, known: StateInfo | None) -> None:
    """Refuse to open restored state with types that would read its stored bytes differently.

    The restore has converted declared state, so this concerns state that functions request at run time. Queries convert their
    state themselves, in their first epoch.
    """
    if known is None or record.definition is not None:
        return
    for part, old, new in (
        ("kind", known.kind, record.kind),
        ("key type", known.key_type, record.key_type),
        ("value type", known.value_type, record.value_type),
        ("map key type", known.namespace_type, record.namespace_type),
    ):
        if old != new and (part == "kind" or not same_bytes(old, new)):
            raise RestoreRefused(
                f"operator {record.uid!r}, state {record.name!r}: its {part} was {old} when it was saved and is {new} in this "
                "program; make its descriptor a class attribute, so that it is known before the job runs and can be "
                "converted at restore, or give the changed state a new name"
            )
    refused = known.pickles_refused(record)
    if refused is not None:
        raise RestoreRefused(f"operator {record.uid!r}, state {record.name!r}: {refused}")


class KeyedBackend:
    """All keyed states of one operator on one subtask."""

    def __init__(
        self,
        uid: str,
        key_type: TypeInformation,
        max_parallelism: int,
        store: Store,
        known: Mapping[int, StateInfo] | None = None,
    ) -> None:
        self.uid = uid
        self._known = known or {}
        self.key_type = key_type
        self.max_parallelism = max_parallelism
        self.store = store
        self.handles: list[Handle] = []
        self.records: list[StateInfo] = []
        self.by_name: dict[str, tuple[StateDescriptor[Any], Any]] = {}
        self._of_windows: dict[str, tuple[StateDescriptor[Any], Any]] = {}
        self.keys: Sequence[Any] = ()
        self.key_bytes: list[bytes] = []
        self.key_groups: list[int] = []
        self.current: int | None = None
        self.current_key: Any = None
        self.processing_time_ms = 0
        self.watermark: Callable[[], int] = lambda: 0
        self.element_time: Callable[[int], int] = lambda default: default
        self.groups = (0, max_parallelism)  # the key groups in the store
        self.sweepers: list[Callable[[ChangeLog], None]] = []
        self.scope = KeyScope(uid)

    # -- declarations

    def sid(self, name: str) -> int:
        return state_id(self.uid, name)

    def record(
        self,
        kind: str,
        name: str,
        value: TypeInformation | None,
        namespace: TypeInformation | None = None,
        ttl_ms: int | None = None,
        fingerprint: str | None = None,
        definition: Any = None,
    ) -> None:
        record = StateInfo.of(self.uid, name, kind, self.key_type, value, namespace, ttl_ms, fingerprint, definition=definition)
        check_known(record, self._known.get(record.sid))
        self.records.append(record)

    def guard(self, name: str, type: TypeInformation) -> Guard:
        return Guard(type, f"operator {self.uid!r}, state {name!r}", lambda: f" of key {shown(self.current_key)}")

    def get(self, descriptor: StateDescriptor, namespace: Namespace | None = None, prefix: str = "") -> Any:
        """The handle of a described state; repeated calls return the same handle.

        ``namespace``: the namespace of window state. ``prefix`` keeps the state's name distinct.
        """
        descriptor = self.described(descriptor)
        states, name = self.by_name if namespace is None else self._of_windows, prefix + descriptor.name
        known = states.get(name)
        if known is None:
            known = states[name] = descriptor, self._open(name, descriptor, namespace)
            if namespace is None:
                self.scope.add(descriptor.name, known[1])
        elif known[0].kind != descriptor.kind:
            raise GraphError(
                f"operator {self.uid!r}: state {descriptor.name!r} was declared as a {known[0].kind} state and is requested "
                f"as a {descriptor.kind} state; give the two states different names"
            )
        return known[1]

    def _open(self, name: str, descriptor: StateDescriptor, namespace: Namespace | None) -> Any:
        if namespace is not None:
            self._check_of_window(descriptor)
        sid, ttl = self.sid(name), descriptor.ttl
        keys = descriptor.key_type if isinstance(descriptor, MapStateDescriptor) else None
        self.record(
            descriptor.kind,
            name,
            descriptor.value_type,
            keys if namespace is None else namespace.type,
            None if ttl is None else ttl.ttl_ms,
            descriptor.fingerprint,
        )
        guard = self.guard(name, descriptor.value_type)
        if ttl is not None:
            guard = stamped = TtlGuard(guard, Expiry(ttl, self))
            is_list = isinstance(descriptor, ListStateDescriptor)
            # In event time, readers remove entries that stay visible after expiry: the time of their visibility must not
            # depend on the ends of epochs.
            if ttl.cleanup_in_background and not (ttl.returns_expired and ttl.event_time):
                self.sweepers.append(Sweeper(self, sid, stamped.list_expired if is_list else stamped.entry_expired))
        match descriptor:
            case ValueStateDescriptor() | ReducingStateDescriptor() | AggregatingStateDescriptor():
                return value_handle(self, sid, guard, descriptor, namespace)
            case ListStateDescriptor():
                handle: ListHandle | MapHandle = ListHandle(self, sid, guard, namespace or Namespace())
            case MapStateDescriptor():
                handle = MapHandle(self, sid, guard, self.guard(name, descriptor.key_type))
            case _:
                raise GraphError(f"operator {self.uid!r}: {descriptor!r} is not a descriptor of keyed state")
        self.add(handle)
        return handle

    def _check_of_window(self, descriptor: StateDescriptor) -> None:
        if descriptor.ttl is not None:
            raise UserFunctionError(
                f"operator {self.uid!r}: window state {descriptor.name!r} has a time to live; omit it, because the state is "
                "removed with its window"
            )
        if isinstance(descriptor, MapStateDescriptor):
            raise UserFunctionError(
                f"operator {self.uid!r}: {descriptor!r} cannot be window state; use a value, list, reducing or "
                "aggregating state (a value state may hold a dict)"
            )

    def described(self, state: Any) -> StateDescriptor:
        """The descriptor itself, or the descriptor of a handle: handles replace descriptors that are class attributes."""
        if isinstance(state, StateDescriptor):
            return state
        for descriptor, handle in self.by_name.values():
            if handle is state:
                return descriptor
        raise GraphError(
            f"operator {self.uid!r}: {state!r} does not describe a state; pass a descriptor, such as "
            "ValueStateDescriptor(name, type), or the attribute of the function's class that declares it"
        )

    def add(self, handle: Handle) -> None:
        self.handles.append(handle)
        if self.keys:  # requested within an epoch
            handle.begin()
        if self.current is not None:
            handle.enter(self.current)

    # -- epochs

    def begin(self, keys: Sequence[Any], processing_time_ms: int, watermark: Callable[[], int]) -> None:
        self.keys = keys
        self.processing_time_ms = processing_time_ms
        self.watermark = watermark
        self.key_bytes, hashes = encode_keys(keys, self.key_type)
        self.key_groups = key_group(hashes, self.max_parallelism).tolist()
        for handle in self.handles:
            handle.begin()
        self.scope.bind()

    def prefixes(self, sid: int) -> list[bytes]:
        """The store keys of one state, without namespaces, for all keys of the epoch."""
        return state_keys(self.key_groups, sid, self.key_bytes)

    def enter(self, index: int) -> None:
        self.current = index
        self.current_key = self.keys[index]
        for handle in self.handles:
            handle.enter(index)

    def leave(self) -> None:
        assert self.current is not None
        for handle in self.handles:
            handle.leave(self.current)
        self.current = None

    def collect(self) -> ChangeLog:
        self.scope.release()
        log = ChangeLog()
        for handle in self.handles:
            handle.collect(log)
        self.sweep(log)
        self.keys, self.key_bytes, self.key_groups = (), [], []
        return log

    def sweep(self, log: ChangeLog) -> None:
        """Remove expired entries that the epoch has not changed."""
        for sweep in self.sweepers:
            sweep(log)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return list(self.store.scan(prefix, prefix_stop(prefix)))
