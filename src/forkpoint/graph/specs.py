"""Operator specs: everything that graphs, restores and tasks need to know about an operator.

Specs of sources, sinks and loop ends are defined here, because compiling and planning depend on them; all others are
defined next to the class that runs them (runtime/).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from forkpoint.functions import CheckpointedFunction, Function, MapStateDescriptor, StateDescriptor, WatermarkStrategy
from forkpoint.functions.adapters import user_function
from forkpoint.types import TypeInformation

if TYPE_CHECKING:
    from forkpoint.checkpoint.states import StateKind
    from forkpoint.contract.sink import Sink
    from forkpoint.contract.source import Source
    from forkpoint.graph.job import Operator
    from forkpoint.types.kinds.records import RecordType


Fields: TypeAlias = frozenset[str] | None
"""Names of fields of elements; None: elements are read as a whole."""


@dataclass(frozen=True)
class DeclaredState:
    """A state known before the job runs. ``keyed``: keyed state rather than operator state."""

    name: str
    kind: StateKind
    value_type: TypeInformation | None
    namespace_type: TypeInformation | None = None
    ttl_ms: int | None = None
    fingerprint: str | None = None
    keyed: bool = True
    definition: Any = None

    @staticmethod
    def of(descriptor: StateDescriptor) -> DeclaredState:
        """The keyed state that a descriptor declares."""
        namespace = descriptor.key_type if isinstance(descriptor, MapStateDescriptor) else None
        ttl_ms = None if descriptor.ttl is None else descriptor.ttl.ttl_ms
        return DeclaredState(
            descriptor.name,
            descriptor.kind,
            descriptor.value_type,
            namespace,
            ttl_ms,
            descriptor.fingerprint,
            definition=descriptor.definition,
        )


@dataclass(frozen=True)
class OperatorSpec:
    """The definition of an operator, which is sent to the tasks.

    ``kind``: the operator's kind in savepoints and on the web page. ``keyed``: whether it has keyed state. ``follows_inputs``:
    whether it takes net changes of what its inputs keep in state, so that it cannot start empty when they do not.
    """

    kind: ClassVar[str]
    keyed: ClassVar[bool] = False
    follows_inputs: ClassVar[bool] = False

    @property
    def function(self) -> Any:
        """The user function, if any."""
        return user_function(getattr(self, "fn", None))

    @property
    def has_operator_state(self) -> bool:
        """Whether the operator, or its function, has operator state."""
        return isinstance(self.function, CheckpointedFunction)

    @property
    def stateful(self) -> bool:
        """Whether the operator has managed state."""
        return self.keyed or self.has_operator_state

    @property
    def needs_uid(self) -> bool:
        """Whether state or positions are saved under the operator's uid."""
        return self.stateful

    @property
    def needs_exchange(self) -> bool:
        """Whether forwarded input is rebalanced: state needs a fixed subtask."""
        return self.stateful

    @property
    def watermark_delay_ms(self) -> int:
        """How far the watermark of its output is behind that of its input."""
        return 0

    def needs_key(self, ordinal: int) -> bool:
        """Whether the input with this ordinal must be keyed."""
        return self.keyed

    def states(self) -> list[DeclaredState]:
        """The states known before the job runs."""
        return []

    @property
    def functions(self) -> frozenset[str]:
        """The user's functions that it can call in expressions, by identity (see relational.functions.user)."""
        return frozenset()

    @property
    def declares_all_states(self) -> bool:
        """Whether ``states()`` is complete; a function may request more states in ``open()``."""
        fn = self.function
        if isinstance(fn, CheckpointedFunction):
            return False
        return not isinstance(fn, Function) or type(fn).open is Function.open

    def how(self, operator: Operator) -> str:
        """How a function runs that could be computed over columns, for people; "" of others."""
        return ""

    def reads(self, output: Fields) -> Fields:
        """The fields of its input that it reads. ``output``: the fields of its output."""
        return None

    def projected(self, output: RecordType) -> Self | None:
        """The operator with another output, which has fewer fields; None if it cannot leave out fields."""
        return None

    def in_batch(self) -> OperatorSpec:
        """The spec that replaces it in BATCH mode; see graph/batch.py."""
        return self


class EndpointSpec(OperatorSpec):
    """A source or sink."""

    @property
    def needs_uid(self) -> bool:
        return True


class WatermarkSpec(OperatorSpec):
    """A source or timestamp assigner, where watermarks originate.

    ``position``: the kind of its position in the manifest. ``timestamp_column``: the field that the strategy's timestamp
    assigner returns, None if it is not a plain field.
    """

    position: ClassVar[Literal["native", "spark", "watermarks"]]

    strategy: WatermarkStrategy
    timestamp_column: str | None

    @property
    def sees_elements(self) -> bool:
        """Whether functions of the strategy see whole elements."""
        return self.strategy.timestamp_assigner is not None or self.strategy.generator_factory is not None


class InputSpec(WatermarkSpec, EndpointSpec):
    """A source. ``only``: the fields that it reads, if the job uses no others."""

    only: tuple[str, ...]

    def how(self, operator: Operator) -> str:
        return f"reads only {', '.join(self.only)}" if self.only else ""


@dataclass(frozen=True)
class SourceSpec(InputSpec):
    """A native source: the driver plans the tasks that read it."""

    kind = "source"
    position = "native"

    source: Source
    strategy: WatermarkStrategy
    timestamp_column: str | None = None
    only: tuple[str, ...] = ()

    @property
    def bounded(self) -> bool:
        return self.source.bounded

    def projected(self, output: RecordType) -> SourceSpec | None:
        source = None if self.sees_elements else self.source.projected(output)
        return None if source is None else replace(self, source=source, only=output.names)

    def in_batch(self) -> SourceSpec:
        return replace(self, strategy=_without_watermarks(self.strategy))


@dataclass(frozen=True, eq=False)
class DataFrameSpec(InputSpec):
    """A Spark DataFrame as a source. The frame stays on the driver; ``JobGraph.shipped`` removes it."""

    kind = "source"
    position = "spark"

    frame: Any
    strategy: WatermarkStrategy
    timestamp_column: str | None
    split_column: str | None
    max_rows: int | None
    only: tuple[str, ...] = ()

    @property
    def bounded(self) -> bool:
        return not self.frame.isStreaming

    def projected(self, output: RecordType) -> DataFrameSpec | None:
        by_name = all(self.frame.columns.count(name) == 1 for name in output.names)
        if self.sees_elements or not by_name or self.split_column not in (None, *output.names):
            return None
        frame = self.frame.select(*(f"`{name.replace('`', '``')}`" for name in output.names))
        return replace(self, frame=frame, only=output.names)


@dataclass(frozen=True)
class TimestampsSpec(WatermarkSpec):
    """A timestamp assigner."""

    kind = "timestamps"
    position = "watermarks"

    strategy: WatermarkStrategy
    timestamp_column: str | None = None

    def reads(self, output: Fields) -> Fields:
        return None if self.sees_elements else output  # which has the column of the timestamps

    def projected(self, output: RecordType) -> TimestampsSpec | None:
        return self

    def in_batch(self) -> TimestampsSpec:
        return replace(self, strategy=_without_watermarks(self.strategy))


def _without_watermarks(strategy: WatermarkStrategy) -> WatermarkStrategy:
    return replace(strategy, out_of_orderness_ms=None, generator_factory=None, idleness_ms=None, alignment=None)


@dataclass(frozen=True)
class SinkSpec(EndpointSpec):
    kind = "sink"

    sink: Sink


@dataclass(frozen=True)
class EpochSinkSpec(EndpointSpec):
    """Calls ``fn(df, epoch)`` with each epoch's elements as a Spark DataFrame, on the driver, before the commit."""

    kind = "epoch_sink"

    fn: Callable[[Any, int], None]
    type: TypeInformation


@dataclass(frozen=True)
class _LoopSpec(OperatorSpec):
    """The head and the end of an iteration have the same ``loop``. Elements are saved as ``element_type``."""

    loop: int
    element_type: TypeInformation

    @property
    def stateful(self) -> bool:
        return True


@dataclass(frozen=True)
class LoopStart(_LoopSpec):
    """The head of an iteration."""


@dataclass(frozen=True)
class LoopEnd(_LoopSpec):
    """The end of an iteration. ``iteration``: the uid of its head, set when the graph is compiled."""

    iteration: str = ""

    @property
    def needs_uid(self) -> bool:
        return False  # its state is saved under the head's uid

    @property
    def needs_exchange(self) -> bool:
        return False  # the head has exchanged its input
