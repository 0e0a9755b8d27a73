"""What a program builds: transformations linked by edges, still without uids checked or stages cut.

The stream façade creates these; ``graph.compile`` turns them into a frozen ``JobGraph``. A transformation is the only
mutable thing here, because ``uid()``, ``name()`` and ``set_parallelism()`` are said after it exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from forkpoint.functions import (
    AggregateFunction,
    Aggregates,
    AsyncRetryStrategy,
    Evictor,
    MapStateDescriptor,
    OutputTag,
    ProcessWindowFunction,
    ReduceFunction,
    RowShape,
    Trigger,
    WatermarkStrategy,
    WindowAssigner,
    WindowFunction,
)
from forkpoint.types import TypeInformation

if TYPE_CHECKING:
    from forkpoint.connectors.base import Sink, Source


@dataclass(frozen=True)
class Forward:
    """Elements stay where they are."""


@dataclass(frozen=True)
class KeyBy:
    """Elements go to the subtask that owns their key's key group.

    ``selector`` takes an element and returns its key. ``columns`` names the fields that make up the key where the
    selector does nothing but pick fields, so that the key can be taken from columns without touching elements;
    ``single`` tells whether the key is the field itself or a tuple of the fields. No names at all: one key that all have.
    """

    selector: Callable[[Any], Any]
    key_type: TypeInformation | None
    columns: tuple[str, ...] | None = None
    single: bool = True


@dataclass(frozen=True)
class Rebalance:
    """Elements are spread over the subtasks: one by one, or each split as a whole, so that its order survives.

    ``said``: what the program called it; it makes no difference.
    """

    by: Literal["element", "split"] = "element"
    said: str = field(default="REBALANCE", compare=False)


@dataclass(frozen=True)
class Custom:
    """Elements go where a function of theirs says: ``partitioner(key, number of subtasks)``, the key by ``selector``."""

    partitioner: Callable[[Any, int], int]
    selector: Callable[[Any], Any]


@dataclass(frozen=True)
class Broadcast:
    """Every subtask gets every element.

    ``at_next_watermark``: an element takes effect at the watermark that follows it, as far as the source knows that one,
    instead of the watermark before it, so a rule whose stream had been silent takes effect at its own time.
    """

    at_next_watermark: bool = False


Partitioning = Forward | KeyBy | Rebalance | Custom | Broadcast


@dataclass(frozen=True)
class SourceSpec:
    """``timestamp_column``: the field that the strategy's timestamp assigner picks, where it does nothing else."""

    source: Source
    strategy: WatermarkStrategy
    timestamp_column: str | None = None


@dataclass(frozen=True, eq=False)
class DataFrameSpec:
    """A Spark DataFrame as a source; the frame itself stays on the driver (it is dropped when the graph is shipped)."""

    frame: Any
    strategy: WatermarkStrategy
    timestamp_column: str | None
    split_column: str | None
    max_rows: int | None


@dataclass(frozen=True)
class MapSpec:
    fn: Any


@dataclass(frozen=True)
class FlatMapSpec:
    fn: Any


@dataclass(frozen=True)
class FilterSpec:
    fn: Any


@dataclass(frozen=True)
class ProcessSpec:
    """A ProcessFunction on a stream without keys."""

    fn: Any


@dataclass(frozen=True)
class AsyncSpec:
    """An AsyncFunction, or a plain ``async def``; ``timeout_ms`` is that of one element over all attempts."""

    fn: Any
    timeout_ms: int
    capacity: int
    retry: AsyncRetryStrategy | None


@dataclass(frozen=True)
class TimestampsSpec:
    strategy: WatermarkStrategy
    timestamp_column: str | None = None


@dataclass(frozen=True)
class KeyedProcessSpec:
    fn: Any


@dataclass(frozen=True)
class CoProcessSpec:
    """A CoProcessFunction on two streams without keys."""

    fn: Any


@dataclass(frozen=True)
class KeyedCoProcessSpec:
    """A KeyedCoProcessFunction on two keyed streams."""

    fn: Any


@dataclass(frozen=True)
class BroadcastProcessSpec:
    """A BroadcastProcessFunction on a stream without keys and a broadcast one. ``descriptors``: of the broadcast states."""

    fn: Any
    descriptors: tuple[MapStateDescriptor[Any, Any], ...]


@dataclass(frozen=True)
class KeyedBroadcastProcessSpec:
    """A KeyedBroadcastProcessFunction on a keyed stream and a broadcast one."""

    fn: Any
    descriptors: tuple[MapStateDescriptor[Any, Any], ...]


@dataclass(frozen=True)
class ReduceSpec:
    fn: Any
    value_type: TypeInformation


@dataclass(frozen=True)
class RollingSpec:
    """A running aggregate of one field: every element comes out with the field replaced (or the extreme element)."""

    kind: Literal["sum", "min", "max", "min_by", "max_by"]
    field: int | str
    value_type: TypeInformation


@dataclass(frozen=True)
class MapWithStateSpec:
    """``fn(element, state | None) -> (out, state | None)``; with ``flat`` the first is an iterable of outputs."""

    fn: Callable[[Any, Any], tuple[Any, Any]]
    state_type: TypeInformation
    flat: bool


@dataclass(frozen=True)
class RunningAggregatesSpec:
    """``agg`` on a keyed stream: every element comes out as a row of its key's aggregates so far."""

    aggregates: Aggregates
    shape: RowShape
    accumulator_type: TypeInformation


@dataclass(frozen=True)
class KeyedBatchSpec:
    """A KeyedBatchFunction: all of an epoch's elements of a subtask at once, as columns."""

    fn: Any


@dataclass(frozen=True)
class WindowSpec:
    """Windows of a keyed stream.

    ``contents``: what the state of a window is, its elements (``list``; with an evictor pairs with their timestamps), or
    what ``reduce`` or ``aggregate`` made of them: ``combine`` is the function, ``contents_type`` the type of one element,
    of the reduced element or of the accumulator. ``fn``: the window function, None where ``combine``'s result comes out.
    ``tagged``: the elements are those of two streams, each a TaggedUnion.
    """

    assigner: WindowAssigner
    trigger: Trigger
    evictor: Evictor | None
    lateness_ms: int
    late_tag: OutputTag | None
    contents: Literal["list", "reducing", "aggregating"]
    contents_type: TypeInformation
    combine: ReduceFunction | AggregateFunction | RollingSpec | Callable[[Any, Any], Any] | None
    fn: ProcessWindowFunction | WindowFunction | None
    tagged: bool = False

    @property
    def window_type(self) -> TypeInformation | None:
        return self.assigner.window_type()

    @property
    def fingerprint(self) -> str:
        """What saved contents mean; those of another meaning are not restored."""
        combine = self.combine
        made = f"{combine.kind}({combine.field})" if isinstance(combine, RollingSpec) else self.contents
        made = f"{made} of two streams" if self.tagged else made
        parts = [self.assigner.describe(), self.trigger.describe(), made]
        return ", ".join(parts if self.evictor is None else [*parts, self.evictor.describe()])


@dataclass(frozen=True)
class EventTimeSortSpec:
    """Elements in the order of their timestamps; ``element_type`` is that of those that wait. Late ones go to ``late_tag``,
    nowhere if it is None."""

    element_type: TypeInformation
    late_tag: OutputTag | None


@dataclass(frozen=True)
class IterationSpec:
    """The start of a loop; the FeedbackSpec with the same ``loop`` is its end. Elements are saved by ``element_type``."""

    loop: int
    element_type: TypeInformation


@dataclass(frozen=True)
class FeedbackSpec:
    """The end of a loop. ``iteration``: the uid of its start, known once the graph is compiled."""

    loop: int
    element_type: TypeInformation
    iteration: str = ""


@dataclass(frozen=True)
class SinkSpec:
    sink: Sink


@dataclass(frozen=True)
class EpochSinkSpec:
    """``fn(df, epoch)`` gets each epoch's elements as a Spark DataFrame, on the driver, before the manifest."""

    fn: Callable[[Any, int], None]
    type: TypeInformation


OperatorSpec = (
    SourceSpec | DataFrameSpec | MapSpec | FlatMapSpec | FilterSpec | ProcessSpec | AsyncSpec | TimestampsSpec |
    KeyedProcessSpec | CoProcessSpec | KeyedCoProcessSpec | BroadcastProcessSpec | KeyedBroadcastProcessSpec |
    ReduceSpec | RollingSpec | RunningAggregatesSpec | KeyedBatchSpec | MapWithStateSpec | WindowSpec |
    EventTimeSortSpec | IterationSpec | FeedbackSpec | SinkSpec | EpochSinkSpec
)  # fmt: skip


@dataclass(frozen=True)
class Migrations:
    """One-step migrations of an operator's saved state, by the version that each takes: of states by name, and of keys.

    A version is one more than the latest migration's; a state or key that has none is of version 1.
    """

    states: Mapping[str, Mapping[int, Callable[[Any], Any]]] = field(default_factory=dict)
    keys: Mapping[int, Callable[[Any], Any]] = field(default_factory=dict)

    def version(self, state: str) -> int:
        return max(self.states.get(state, ()), default=0) + 1

    @property
    def key_version(self) -> int:
        return max(self.keys, default=0) + 1


@dataclass(frozen=True, eq=False)
class Edge:
    """One input of a transformation: whose output (or side output), and how its elements travel."""

    upstream: Transformation
    tag: OutputTag | None = None
    partitioning: Partitioning = field(default_factory=Forward)
    ordinal: int = 0  # 0 for the only or first input, 1 for the second input of a connected operator


@dataclass(eq=False)
class Transformation:
    spec: OperatorSpec
    name: str
    inputs: tuple[Edge, ...]
    output_type: TypeInformation | None
    uid: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    migrations: Migrations = field(default_factory=Migrations)
