"""The interfaces between the runtime and user code: functions, contexts, state, time. Independent of the engine."""

# ruff: noqa: I001  # isort would split imports with aliases

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:  # `as` re-exports a name to type checkers
    from forkpoint.functions.aggregates import (
        Aggregates as Aggregates,
        RowShape as RowShape,
        WindowRows as WindowRows,
        row_shape as row_shape,
    )
    from forkpoint.functions.aggregators import (
        Aggregator as Aggregator,
        Avg as Avg,
        Collect as Collect,
        Count as Count,
        CountDistinct as CountDistinct,
        First as First,
        Last as Last,
        Max as Max,
        MaxBy as MaxBy,
        Min as Min,
        MinBy as MinBy,
        StdDev as StdDev,
        Sum as Sum,
        TopN as TopN,
        WindowBound as WindowBound,
        WindowEnd as WindowEnd,
        WindowStart as WindowStart,
    )
    from forkpoint.functions.async_lookup import (
        AsyncFunction as AsyncFunction,
        AsyncLookupFunction as AsyncLookupFunction,
        AsyncRetryPredicate as AsyncRetryPredicate,
        AsyncRetryStrategy as AsyncRetryStrategy,
        ExponentialBackoffDelayRetryStrategy as ExponentialBackoffDelayRetryStrategy,
        FixedDelayRetryStrategy as FixedDelayRetryStrategy,
        LookupFunction as LookupFunction,
        NoRetryStrategy as NoRetryStrategy,
        RetryPredicate as RetryPredicate,
        empty_result_predicate as empty_result_predicate,
        exception_type_predicate as exception_type_predicate,
        has_exception_predicate as has_exception_predicate,
    )
    from forkpoint.functions.base import (
        AggregateFunction as AggregateFunction,
        FilterFunction as FilterFunction,
        FlatMapFunction as FlatMapFunction,
        Function as Function,
        KeySelector as KeySelector,
        MapFunction as MapFunction,
        Partitioner as Partitioner,
        ReduceFunction as ReduceFunction,
    )
    from forkpoint.functions.batch_function import (
        BatchContext as BatchContext,
        BatchState as BatchState,
        KeyedBatchFunction as KeyedBatchFunction,
    )
    from forkpoint.functions.co_functions import (
        CoFlatMapFunction as CoFlatMapFunction,
        CoMapFunction as CoMapFunction,
        CoProcessFunction as CoProcessFunction,
        KeyedCoProcessFunction as KeyedCoProcessFunction,
    )
    from forkpoint.functions.context import RuntimeContext as RuntimeContext
    from forkpoint.functions.joins import (
        CoGroupFunction as CoGroupFunction,
        FlatJoinFunction as FlatJoinFunction,
        JoinFunction as JoinFunction,
        ProcessJoinFunction as ProcessJoinFunction,
        TaggedUnion as TaggedUnion,
    )
    from forkpoint.functions.metrics import (
        Counter as Counter,
        Distribution as Distribution,
        Meter as Meter,
        MetricGroup as MetricGroup,
    )
    from forkpoint.functions.output_tag import OutputTag as OutputTag
    from forkpoint.functions.process import (
        KeyedProcessFunction as KeyedProcessFunction,
        ProcessFunction as ProcessFunction,
        TimeDomain as TimeDomain,
        TimerService as TimerService,
    )
    from forkpoint.functions.state.descriptors import (
        AggregatingStateDescriptor as AggregatingStateDescriptor,
        ListStateDescriptor as ListStateDescriptor,
        MapStateDescriptor as MapStateDescriptor,
        ReducingStateDescriptor as ReducingStateDescriptor,
        StateDescriptor as StateDescriptor,
        ValueStateDescriptor as ValueStateDescriptor,
        declared_states as declared_states,
    )
    from forkpoint.functions.state.handles import (
        AggregatingState as AggregatingState,
        ListState as ListState,
        MapState as MapState,
        ReducingState as ReducingState,
        State as State,
        ValueState as ValueState,
    )
    from forkpoint.functions.state.operator_state import (
        BroadcastProcessFunction as BroadcastProcessFunction,
        BroadcastState as BroadcastState,
        CheckpointedFunction as CheckpointedFunction,
        CheckpointListener as CheckpointListener,
        FunctionInitializationContext as FunctionInitializationContext,
        FunctionSnapshotContext as FunctionSnapshotContext,
        KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
        OperatorStateStore as OperatorStateStore,
        ReadOnlyBroadcastState as ReadOnlyBroadcastState,
        keyed_states as keyed_states,
    )
    from forkpoint.functions.state.ttl import (
        Duration as Duration,
        StateTtlConfig as StateTtlConfig,
        StateTtlConfigBuilder as StateTtlConfigBuilder,
        Time as Time,
        to_ms as to_ms,
    )
    from forkpoint.functions.watermarks import (
        MAX_WATERMARK as MAX_WATERMARK,
        MIN_WATERMARK as MIN_WATERMARK,
        TimestampAssigner as TimestampAssigner,
        WatermarkAlignment as WatermarkAlignment,
        WatermarkGenerator as WatermarkGenerator,
        WatermarkOutput as WatermarkOutput,
        WatermarkStrategy as WatermarkStrategy,
        epoch_ms as epoch_ms,
    )
    from forkpoint.functions.windows.assigners import (
        CountSlidingWindowAssigner as CountSlidingWindowAssigner,
        CountTumblingWindowAssigner as CountTumblingWindowAssigner,
        EventTimeSessionWindows as EventTimeSessionWindows,
        GlobalWindows as GlobalWindows,
        MergeCallback as MergeCallback,
        MergingWindowAssigner as MergingWindowAssigner,
        ProcessingTimeSessionWindows as ProcessingTimeSessionWindows,
        SessionWindowTimeGapExtractor as SessionWindowTimeGapExtractor,
        SlidingEventTimeWindows as SlidingEventTimeWindows,
        SlidingProcessingTimeWindows as SlidingProcessingTimeWindows,
        TumblingEventTimeWindows as TumblingEventTimeWindows,
        TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
        WindowAssigner as WindowAssigner,
        WindowAssignerContext as WindowAssignerContext,
    )
    from forkpoint.functions.windows.functions import (
        AllWindowFunction as AllWindowFunction,
        CountEvictor as CountEvictor,
        DeltaEvictor as DeltaEvictor,
        Evictor as Evictor,
        EvictorContext as EvictorContext,
        ProcessAllWindowFunction as ProcessAllWindowFunction,
        ProcessWindowFunction as ProcessWindowFunction,
        TimeEvictor as TimeEvictor,
        TimestampedValue as TimestampedValue,
        WindowFunction as WindowFunction,
    )
    from forkpoint.functions.windows.triggers import (
        ContinuousEventTimeTrigger as ContinuousEventTimeTrigger,
        ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
        CountTrigger as CountTrigger,
        DeltaTrigger as DeltaTrigger,
        EndOfStreamTrigger as EndOfStreamTrigger,
        EventTimeTrigger as EventTimeTrigger,
        NeverTrigger as NeverTrigger,
        OnMergeContext as OnMergeContext,
        ProcessingTimeTrigger as ProcessingTimeTrigger,
        PurgingTrigger as PurgingTrigger,
        Trigger as Trigger,
        TriggerContext as TriggerContext,
        TriggerResult as TriggerResult,
    )
    from forkpoint.functions.windows.windows import (
        CountWindow as CountWindow,
        CountWindowSerializer as CountWindowSerializer,
        GlobalWindow as GlobalWindow,
        GlobalWindowSerializer as GlobalWindowSerializer,
        TimeWindow as TimeWindow,
        TimeWindowSerializer as TimeWindowSerializer,
        Window as Window,
        WindowSerializer as WindowSerializer,
    )

__getattr__ = loader(__name__)
