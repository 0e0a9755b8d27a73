"""The compiled job: operators in topological order, in stages. Frozen; sent once to every worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from forkpoint.graph.specs import (
    DataFrameSpec,
    EpochSinkSpec,
    LoopStart,
    OperatorSpec,
    SinkSpec,
    SourceSpec,
    TimestampsSpec,
    WatermarkSpec,
)
from forkpoint.graph.transformations import KeyBy, Migrations, Partitioning
from forkpoint.types import TypeInformation

if TYPE_CHECKING:
    from forkpoint.contract.source import Source


@dataclass(frozen=True)
class InEdge:
    """An input of an operator. ``crosses``: whether elements pass an exchange between stages."""

    id: int
    upstream: int
    tag: str | None
    partitioning: Partitioning
    ordinal: int
    crosses: bool
    type: TypeInformation | None


@dataclass(frozen=True)
class Operator:
    """``origins``: the upstream sources and timestamp assigners whose watermarks it receives, or itself.
    ``over_columns``: whether functions that are expressions are computed over columns."""

    id: int
    uid: str
    generated_uid: bool
    name: str
    kind: str
    spec: OperatorSpec
    stage: int
    inputs: tuple[InEdge, ...]
    output_type: TypeInformation | None
    stateful: bool
    origins: frozenset[int]
    timestamp_column: str | None
    migrations: Migrations = field(default_factory=Migrations)
    over_columns: bool = True

    @property
    def input_type(self) -> TypeInformation | None:
        """The type of the elements that it reads; None if some are untyped, or of other types."""
        types = [each.type for each in self.inputs]
        return types[0] if types and all(of == types[0] for of in types) else None

    @property
    def key(self) -> KeyBy | None:
        """The key of the first input; None if it is not keyed."""
        return self.key_of(0)

    @property
    def source(self) -> Source:
        """The Source of a native source operator."""
        assert isinstance(self.spec, SourceSpec)
        return self.spec.source

    def key_of(self, ordinal: int) -> KeyBy | None:
        """The key of an input; None if it is not keyed."""
        partitioning = next((e.partitioning for e in self.inputs if e.ordinal == ordinal), None)
        return partitioning if isinstance(partitioning, KeyBy) else None


@dataclass(frozen=True)
class JobGraph:
    operators: tuple[Operator, ...]
    stages: int  # the number of exchanges; stage ids run from 0 to this
    max_parallelism: int
    consumers: dict[int, tuple[tuple[int, InEdge], ...]] = field(default_factory=dict)
    batch: bool = False  # see graph/batch.py

    @cached_property
    def by_id(self) -> dict[int, Operator]:
        return {o.id: o for o in self.operators}

    @cached_property
    def by_uid(self) -> dict[str, Operator]:
        return {o.uid: o for o in self.operators}

    def consumers_of(self, operator: Operator, tag: str | None) -> list[tuple[Operator, InEdge]]:
        """The operators that read an operator's main output (tag None) or side output, with their edges."""
        return [(self.by_id[i], edge) for i, edge in self.consumers.get(operator.id, ()) if edge.tag == tag]

    @cached_property
    def edges(self) -> dict[int, tuple[Operator, InEdge]]:
        """Edge id → the consuming operator and the edge."""
        return {e.id: (o, e) for o in self.operators for e in o.inputs}

    def stage(self, stage: int) -> tuple[Operator, ...]:
        return tuple(o for o in self.operators if o.stage == stage)

    @property
    def native_sources(self) -> tuple[Operator, ...]:
        return tuple(o for o in self.operators if isinstance(o.spec, SourceSpec))

    @property
    def frame_sources(self) -> tuple[Operator, ...]:
        return tuple(o for o in self.operators if isinstance(o.spec, DataFrameSpec))

    @property
    def sources(self) -> tuple[Operator, ...]:
        return tuple(o for o in self.operators if isinstance(o.spec, SourceSpec | DataFrameSpec))

    @property
    def sinks(self) -> tuple[Operator, ...]:
        return tuple(o for o in self.operators if isinstance(o.spec, SinkSpec | EpochSinkSpec))

    @cached_property
    def assigners(self) -> tuple[Operator, ...]:
        """The timestamp assigners downstream of sources, in topological order."""
        return tuple(o for o in self.operators if isinstance(o.spec, TimestampsSpec))

    @cached_property
    def loops(self) -> bool:
        """Whether the job has iterations."""
        return any(isinstance(o.spec, LoopStart) for o in self.operators)

    @cached_property
    def generating(self) -> frozenset[int]:
        """The sources upstream of a watermark generator: one task must read each split in order."""
        return self.sources_of(
            o.id for o in self.operators if isinstance(o.spec, WatermarkSpec) and o.spec.strategy.generator_factory is not None
        )

    def sources_of(self, operators: Iterable[int]) -> frozenset[int]:
        """The ids of the sources upstream of these operators; a source is upstream of itself."""
        return frozenset(o for o in self.upstream_of(operators) if not self.by_id[o].inputs)

    def upstream_of(self, operators: Iterable[int]) -> frozenset[int]:
        """The ids of these operators and of all that they read, directly or not."""
        seen: set[int] = set()
        pending = list(operators)
        while pending:
            operator = pending.pop()
            if operator not in seen:
                seen.add(operator)
                pending.extend(e.upstream for e in self.by_id[operator].inputs)
        return frozenset(seen)

    def origins_before(self, operator: Operator) -> frozenset[int]:
        """The watermark origins of an operator's inputs."""
        return frozenset().union(*(self.by_id[e.upstream].origins for e in operator.inputs))

    def split_name(self, operator: Operator, origin: int, split: str) -> str:
        """The name of a split of ``origin`` at a timestamp assigner, qualified if it could be ambiguous."""
        return split if len(self.origins_before(operator)) < 2 else f"{self.by_id[origin].uid}/{split}"

    def with_specs(self, change: Callable[[Operator], OperatorSpec]) -> JobGraph:
        """The same graph with replaced operator specs."""
        return replace(self, operators=tuple(replace(o, spec=change(o)) for o in self.operators))

    def shipped(self, stage_epoch_sink: Callable[[EpochSinkSpec], SinkSpec]) -> JobGraph:
        """The graph for workers: without DataFrames, and with epoch sinks replaced by sinks that stage for the driver."""

        def shipped(operator: Operator) -> OperatorSpec:
            spec = operator.spec
            if isinstance(spec, DataFrameSpec):
                return replace(spec, frame=None)
            return stage_epoch_sink(spec) if isinstance(spec, EpochSinkSpec) else spec

        return self.with_specs(shipped)
