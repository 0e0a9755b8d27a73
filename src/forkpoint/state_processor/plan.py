"""The states of a new savepoint: where their rows come from, and the steps that change them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from forkpoint.checkpoint.savepoint_manifest import SavepointState
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import EditRefused
from forkpoint.functions import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from forkpoint.savepoint.reading import OpenedSavepoint
from forkpoint.state_processor.steps import Step
from forkpoint.types import TypeInformation

_KEYED: dict[type[StateDescriptor], str] = {
    ValueStateDescriptor: "value",
    ListStateDescriptor: "list",
    MapStateDescriptor: "map",
    ReducingStateDescriptor: "reducing",
    AggregatingStateDescriptor: "aggregating",
}


@dataclass(frozen=True)
class SavedRows:
    """The rows of another savepoint's state."""

    opened: OpenedSavepoint
    state: SavepointState


@dataclass(frozen=True)
class ExternalData:
    """Data from outside savepoints. ``columns``: see ``Fitter``. ``taken``: not empty once it was read."""

    data: Any
    columns: Mapping[str, str]
    taken: list[bool] = field(default_factory=list, compare=False)

    def take(self, where: str) -> Any:
        """The data. Raises EditRefused if it can be read only once, and was."""
        if self.taken and isinstance(self.data, Iterator | pa.RecordBatchReader):
            raise EditRefused(f"{where}: its data is a stream that was read by another write(); give it again")
        self.taken.append(True)
        return self.data


@dataclass(frozen=True)
class PlannedState:
    """A state of the new savepoint: the rows of ``origin``, changed by ``steps``. ``rekeyed``: whether its keys change."""

    info: StateInfo
    origin: SavedRows | ExternalData
    steps: tuple[Step, ...] = ()
    rekeyed: bool = False

    def after(self, step: Step) -> PlannedState:
        """With one more step. Raises EditRefused for external data."""
        if isinstance(self.origin, ExternalData):
            raise EditRefused(f"{self.info.where} is written from given data: change that data instead")
        return replace(self, info=step.after(self.info), steps=(*self.steps, step))

    def named(self, uid: str, name: str) -> PlannedState:
        return replace(self, info=self.info.named(uid, name))


def described(
    uid: str, descriptor: StateDescriptor, key_type: TypeInformation, old: PlannedState | None
) -> PlannedState:
    """The state that a descriptor declares, without rows. It keeps the windows, versions and fingerprint of the state it
    replaces. Raises EditRefused if that is window state of another kind."""
    kind = _KEYED.get(type(descriptor))
    if kind is None:
        raise EditRefused(f"operator {uid!r}: {descriptor!r} does not declare keyed state; give a state descriptor")
    namespace = descriptor.key_type if isinstance(descriptor, MapStateDescriptor) else None
    ttl_ms = None if descriptor.ttl is None else descriptor.ttl.ttl_ms
    info = StateInfo.of(uid, descriptor.name, kind, key_type, descriptor.value_type, namespace, ttl_ms)
    none = ExternalData((), {})
    if old is None:
        return PlannedState(info, none)
    kept: dict[str, Any] = {name: getattr(old.info, name) for name in ("fingerprint", "version", "key_version")}
    if old.info.kind != "map" and old.info.namespace_type is not None:
        if kind != old.info.kind:
            raise EditRefused(
                f"{old.info.where} belongs to windows and is {old.info.kind} state; {type(descriptor).__name__} is not"
            )
        kept["namespace_type"] = old.info.namespace_type
    return replace(old, info=info.replace(**kept), origin=none, steps=(), rekeyed=False)
