"""What a new savepoint is to hold: its states, where the rows of each come from, and what becomes of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from forkpoint.checkpoint.savepoint_manifest import SavepointState
from forkpoint.errors import EditRefused
from forkpoint.functions import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from forkpoint.savepoint.layout import StateSpec
from forkpoint.savepoint.opened import OpenedSavepoint
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
class Saved:
    """A state of another savepoint."""

    opened: OpenedSavepoint
    spec: StateSpec
    state: SavepointState


@dataclass(frozen=True)
class Given:
    """Data from elsewhere. ``columns``: see ``Fitter``. ``taken``: not empty once it was read."""

    data: Any
    columns: Mapping[str, str]
    taken: list[bool] = field(default_factory=list, compare=False)

    def take(self, where: str) -> Any:
        """The data. Raises EditRefused if it can be read once only, and was."""
        if self.taken and isinstance(self.data, Iterator | pa.RecordBatchReader):
            raise EditRefused(f"{where}: its data is a stream that was read by another write(); give it anew")
        self.taken.append(True)
        return self.data


@dataclass(frozen=True)
class PlannedState:
    """A state of the new savepoint. ``origin``: where its rows come from, which then go through ``steps``.

    ``rekeyed``: whether its keys have changed.
    """

    spec: StateSpec
    origin: Saved | Given
    steps: tuple[Step, ...] = ()
    rekeyed: bool = False
    fingerprint: str | None = None
    version: int = 1
    key_version: int = 1

    @staticmethod
    def of(saved: Saved) -> PlannedState:
        state = saved.state
        return PlannedState(
            saved.spec, saved, fingerprint=state.fingerprint, version=state.version, key_version=state.key_version
        )

    def after(self, step: Step) -> PlannedState:
        """With another step behind the others. Raises EditRefused for data from elsewhere."""
        if isinstance(self.origin, Given):
            raise EditRefused(f"{self.spec.where} gets its rows from data that was given: change that data instead")
        return replace(self, spec=step.after(self.spec), steps=(*self.steps, step))

    def named(self, uid: str, name: str) -> PlannedState:
        """Under another name."""
        return replace(self, spec=replace(self.spec, uid=uid, name=name))


def described(
    uid: str, descriptor: StateDescriptor, key_type: TypeInformation, old: PlannedState | None
) -> PlannedState:
    """The state that a descriptor declares, without rows. Of the state it takes the place of it keeps windows, versions and
    what tells its meaning. Raises EditRefused if that is of another kind and belongs to windows."""
    kind = _KEYED.get(type(descriptor))
    if kind is None:
        raise EditRefused(f"operator {uid!r}: {descriptor!r} declares no keyed state; give a state descriptor")
    namespace = descriptor.key_type.describe() if isinstance(descriptor, MapStateDescriptor) else None
    if old is not None and old.spec.kind != "map" and old.spec.namespace_type is not None:
        if kind != old.spec.kind:
            raise EditRefused(
                f"{old.spec.where} belongs to windows and is {old.spec.kind} state; {type(descriptor).__name__} is not"
            )
        namespace = old.spec.namespace_type
    ttl_ms = None if descriptor.ttl is None else descriptor.ttl.ttl_ms
    spec = StateSpec(
        uid, descriptor.name, kind, key_type.describe(), descriptor.value_type.describe(), namespace, ttl_ms
    )
    none = Given((), {})
    return PlannedState(spec, none) if old is None else replace(old, spec=spec, origin=none, steps=(), rekeyed=False)


def key_type_of(states: Iterable[PlannedState]) -> Any:
    """The description of the keys of an operator's states; None if it has no keyed state."""
    return next((state.spec.key_type for state in states if state.spec.key_type is not None), None)


Function = Callable[[Any], Any]
