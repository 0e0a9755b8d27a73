"""The compiled job: operators in topological order, cut into stages. Frozen; shipped once to every worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from forkpoint.graph.transformations import (
    DataFrameSpec,
    EpochSinkSpec,
    KeyBy,
    Migrations,
    OperatorSpec,
    Partitioning,
    SinkSpec,
    SourceSpec,
)
from forkpoint.types import TypeInformation


@dataclass(frozen=True)
class InEdge:
    """One input of an operator. ``crosses`` tells that elements travel by an exchange between stages."""

    id: int
    upstream: int
    tag: str | None
    partitioning: Partitioning
    ordinal: int
    crosses: bool
    type: TypeInformation | None


@dataclass(frozen=True)
class Operator:
    """``origins``: the operators upstream that make watermarks (sources and timestamp assigners)."""

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

    @property
    def key(self) -> KeyBy | None:
        """How this operator's first input is keyed, if it is."""
        partitioning = self.inputs[0].partitioning if self.inputs else None
        return partitioning if isinstance(partitioning, KeyBy) else None


@dataclass(frozen=True)
class JobGraph:
    operators: tuple[Operator, ...]
    stages: int  # the number of exchanges; stage ids run from 0 to this
    max_parallelism: int
    consumers: dict[int, tuple[tuple[int, InEdge], ...]] = field(default_factory=dict)

    @cached_property
    def by_id(self) -> dict[int, Operator]:
        return {o.id: o for o in self.operators}

    @cached_property
    def by_uid(self) -> dict[str, Operator]:
        return {o.uid: o for o in self.operators}

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

    def shipped(self, stage_epoch_sink: Callable[[EpochSinkSpec], SinkSpec]) -> JobGraph:
        """The graph as workers get it: without DataFrames, and with epoch sinks as sinks that stage for the driver."""
        operators = tuple(
            replace(o, spec=replace(o.spec, frame=None)) if isinstance(o.spec, DataFrameSpec)
            else replace(o, spec=stage_epoch_sink(o.spec)) if isinstance(o.spec, EpochSinkSpec)
            else o
            for o in self.operators
        )  # fmt: skip
        return replace(self, operators=operators)
