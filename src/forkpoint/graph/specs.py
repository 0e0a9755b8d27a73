"""What operators are: each kind says here, or beside the class that runs it (runtime/), all that the rest asks of it.

Sources, sinks and the ends of loops stand here, because a graph is cut, checked and planned by them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from forkpoint.functions import (
    CheckpointedFunction,
    Function,
    MapStateDescriptor,
    StateDescriptor,
    WatermarkStrategy,
)
from forkpoint.types import TypeInformation

if TYPE_CHECKING:
    from forkpoint.checkpoint.states import StateKind
    from forkpoint.connectors.base import Sink, Source


@dataclass(frozen=True)
class DeclaredState:
    """A state that an operator has whatever its function does. ``keyed``: it belongs to keys, not to subtasks."""

    name: str
    kind: StateKind
    value_type: TypeInformation | None
    namespace_type: TypeInformation | None = None
    ttl_ms: int | None = None
    fingerprint: str | None = None
    keyed: bool = True

    @staticmethod
    def of(descriptor: StateDescriptor) -> DeclaredState:
        """The keyed state of a descriptor."""
        namespace = descriptor.key_type if isinstance(descriptor, MapStateDescriptor) else None
        ttl_ms = None if descriptor.ttl is None else descriptor.ttl.ttl_ms
        return DeclaredState(
            descriptor.name, descriptor.kind, descriptor.value_type, namespace, ttl_ms, descriptor.fingerprint
        )


@dataclass(frozen=True)
class OperatorSpec:
    """What an operator is. Its fields are what the program said; they travel to the tasks.

    ``kind``: what savepoints and the web page call it. ``keyed``: whether it keeps state by key.
    """

    kind: ClassVar[str]
    keyed: ClassVar[bool] = False

    @property
    def function(self) -> Any:
        """The user's function, if there is one."""
        return getattr(self, "fn", None)

    @property
    def has_operator_state(self) -> bool:
        """Whether it, or its function, has state that belongs to subtasks."""
        return isinstance(self.function, CheckpointedFunction)

    @property
    def stateful(self) -> bool:
        """Whether it has managed state."""
        return self.keyed or self.has_operator_state

    @property
    def needs_uid(self) -> bool:
        """Whether something is saved under its uid."""
        return self.stateful

    @property
    def needs_exchange(self) -> bool:
        """Whether input that is not partitioned is exchanged all the same: state needs a lasting subtask."""
        return self.stateful

    def needs_key(self, ordinal: int) -> bool:
        """Whether the input with this ordinal has to be keyed."""
        return self.keyed

    def states(self) -> list[DeclaredState]:
        """The states that are known before anything runs."""
        return []

    @property
    def declares_all_states(self) -> bool:
        """Whether ``states()`` are all that it can have: a function may ask for more in ``open()``."""
        fn = self.function
        if isinstance(fn, CheckpointedFunction):
            return False
        return not isinstance(fn, Function) or type(fn).open is Function.open

    def in_batch(self) -> OperatorSpec:
        """What runs in its place in BATCH mode; see graph/batch.py."""
        return self


class WatermarkSpec(OperatorSpec):
    """A source, or an operator that assigns timestamps: watermarks are made there.

    ``position``: the kind of the entry that the manifest has for it. ``timestamp_column``: the field that the strategy's
    timestamp assigner picks, where it does nothing else.
    """

    position: ClassVar[Literal["native", "spark", "watermarks"]]

    strategy: WatermarkStrategy
    timestamp_column: str | None


@dataclass(frozen=True)
class SourceSpec(WatermarkSpec):
    """A source of forkpoint's own, read in tasks that the driver plans."""

    kind = "source"
    position = "native"

    source: Source
    strategy: WatermarkStrategy
    timestamp_column: str | None = None

    @property
    def needs_uid(self) -> bool:
        return True

    @property
    def bounded(self) -> bool:
        return self.source.bounded

    def in_batch(self) -> SourceSpec:
        return replace(self, strategy=_without_watermarks(self.strategy))


@dataclass(frozen=True, eq=False)
class DataFrameSpec(WatermarkSpec):
    """A Spark DataFrame as a source; the frame itself stays on the driver (it is dropped when the graph is shipped)."""

    kind = "source"
    position = "spark"

    frame: Any
    strategy: WatermarkStrategy
    timestamp_column: str | None
    split_column: str | None
    max_rows: int | None

    @property
    def needs_uid(self) -> bool:
        return True

    @property
    def bounded(self) -> bool:
        return not self.frame.isStreaming


@dataclass(frozen=True)
class TimestampsSpec(WatermarkSpec):
    """Timestamps and watermarks that are assigned behind a source."""

    kind = "timestamps"
    position = "watermarks"

    strategy: WatermarkStrategy
    timestamp_column: str | None = None

    def in_batch(self) -> TimestampsSpec:
        return replace(self, strategy=_without_watermarks(self.strategy))


def _without_watermarks(strategy: WatermarkStrategy) -> WatermarkStrategy:
    return replace(strategy, out_of_orderness_ms=None, generator_factory=None, idleness_ms=None, alignment=None)


@dataclass(frozen=True)
class SinkSpec(OperatorSpec):
    kind = "sink"

    sink: Sink

    @property
    def needs_uid(self) -> bool:
        return True


@dataclass(frozen=True)
class EpochSinkSpec(OperatorSpec):
    """``fn(df, epoch)`` gets each epoch's elements as a Spark DataFrame, on the driver, before the manifest."""

    kind = "epoch_sink"

    fn: Callable[[Any, int], None]
    type: TypeInformation

    @property
    def needs_uid(self) -> bool:
        return True


@dataclass(frozen=True)
class LoopStart(OperatorSpec):
    """The start of an iteration; the LoopEnd with the same ``loop`` is its end. Elements are saved by ``element_type``."""

    loop: int
    element_type: TypeInformation

    @property
    def stateful(self) -> bool:
        return True


@dataclass(frozen=True)
class LoopEnd(OperatorSpec):
    """The end of an iteration. ``iteration``: the uid of its start, known once the graph is compiled."""

    loop: int
    element_type: TypeInformation
    iteration: str = ""

    @property
    def stateful(self) -> bool:
        return True

    @property
    def needs_uid(self) -> bool:
        return False  # what it keeps is its iteration's

    @property
    def needs_exchange(self) -> bool:
        return False  # behind its iteration, so it is on a lasting subtask already
