"""What the runtime calls and hands to user code: function classes, contexts, state, time. No engine in here."""

from forkpoint.functions.adapters import as_keyed_process
from forkpoint.functions.base import (
    AggregateFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeySelector,
    MapFunction,
    ReduceFunction,
)
from forkpoint.functions.checkpointed import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    OperatorStateStore,
)
from forkpoint.functions.context import RuntimeContext
from forkpoint.functions.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
    declared_states,
)
from forkpoint.functions.durations import Duration, Time, to_ms
from forkpoint.functions.output_tag import OutputTag
from forkpoint.functions.process import KeyedProcessFunction, ProcessFunction, TimeDomain, TimerService
from forkpoint.functions.state import AggregatingState, ListState, MapState, ReducingState, State, ValueState
from forkpoint.functions.ttl import StateTtlConfig, StateTtlConfigBuilder
from forkpoint.functions.watermarks import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    TimestampAssigner,
    WatermarkAlignment,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
    epoch_ms,
)

__all__ = [
    "MAX_WATERMARK",
    "MIN_WATERMARK",
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "CheckpointListener",
    "CheckpointedFunction",
    "Duration",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "KeySelector",
    "KeyedProcessFunction",
    "ListState",
    "ListStateDescriptor",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "OperatorStateStore",
    "OutputTag",
    "ProcessFunction",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "RuntimeContext",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "StateTtlConfigBuilder",
    "Time",
    "TimeDomain",
    "TimerService",
    "TimestampAssigner",
    "ValueState",
    "ValueStateDescriptor",
    "WatermarkAlignment",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
    "as_keyed_process",
    "declared_states",
    "epoch_ms",
    "to_ms",
]
