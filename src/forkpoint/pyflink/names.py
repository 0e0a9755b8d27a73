"""Maps PyFlink's names to forkpoint's objects."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

FLINK_VERSION = "2.3.0"  # the version whose names these are

_FUNCTIONS = """
    AggregateFunction AllWindowFunction AsyncFunction AsyncRetryPredicate AsyncRetryStrategy BaseBroadcastProcessFunction
    BroadcastProcessFunction CoFlatMapFunction CoMapFunction CoProcessFunction FilterFunction FlatMapFunction Function
    KeySelector KeyedBroadcastProcessFunction KeyedCoProcessFunction KeyedProcessFunction MapFunction Partitioner
    ProcessAllWindowFunction ProcessFunction ProcessWindowFunction ReduceFunction RuntimeContext TimerService WindowFunction
"""
_STATES = """
    AggregatingState AggregatingStateDescriptor BroadcastState ListState ListStateDescriptor MapState MapStateDescriptor
    OperatorStateStore ReadOnlyBroadcastState ReducingState ReducingStateDescriptor State StateDescriptor StateTtlConfig
    ValueState ValueStateDescriptor
"""
_WINDOWS = """
    ContinuousEventTimeTrigger ContinuousProcessingTimeTrigger CountSlidingWindowAssigner CountTrigger
    CountTumblingWindowAssigner CountWindow CountWindowSerializer DynamicEventTimeSessionWindows
    DynamicProcessingTimeSessionWindows EventTimeSessionWindows EventTimeTrigger GlobalWindow GlobalWindowSerializer
    GlobalWindows MergingWindowAssigner NeverTrigger ProcessingTimeSessionWindows ProcessingTimeTrigger PurgingTrigger
    SessionWindowTimeGapExtractor SlidingEventTimeWindows SlidingProcessingTimeWindows TimeWindow TimeWindowSerializer
    Trigger TriggerResult TumblingEventTimeWindows TumblingProcessingTimeWindows Window WindowAssigner
"""
_STREAMS = """
    AllWindowedStream BroadcastConnectedStream BroadcastStream CloseableIterator ConnectedStreams DataStream DataStreamSink
    KeyedStream WindowedStream
"""
_METRICS = "Counter Distribution Meter Metric MetricGroup"

# Module → its names, which are attributes of `forkpoint` except those in `_ELSEWHERE`.
MODULES: dict[str, Sequence[str]] = {
    module: names.split()
    for module, names in {
        "pyflink": "",
        "pyflink.version": "__version__",
        "pyflink.common": "ByteArraySchema CompletableFuture Configuration DeserializationSchema Duration Encoder "
        "ExecutionConfig JobClient JobExecutionResult JobID JobStatus Row RowKind SerializationSchema SimpleStringSchema Time "
        "TypeInformation TypeSerializer Types WatermarkStrategy",
        "pyflink.common.completable_future": "CompletableFuture",
        "pyflink.common.configuration": "Configuration",
        "pyflink.common.execution_config": "ExecutionConfig",
        "pyflink.common.job_client": "JobClient",
        "pyflink.common.job_execution_result": "JobExecutionResult",
        "pyflink.common.job_id": "JobID",
        "pyflink.common.job_status": "JobStatus",
        "pyflink.common.restart_strategy": "",
        "pyflink.common.serialization": "ByteArraySchema DeserializationSchema Encoder RowFieldExtractorSchema "
        "SerializationSchema SimpleStringSchema",
        "pyflink.common.serializer": "TypeSerializer",
        "pyflink.common.time": "Duration Time",
        "pyflink.common.typeinfo": "TypeInformation Types",
        "pyflink.common.types": "Row RowKind",
        "pyflink.common.watermark_strategy": "TimestampAssigner WatermarkStrategy",
        "pyflink.datastream": f"{_FUNCTIONS} {_STREAMS} AsyncDataStream CheckpointConfig CheckpointingMode CountWindow "
        "ExternalizedCheckpointRetention GlobalWindow MemorySize MergingWindowAssigner OutputTag RuntimeExecutionMode "
        "SlotSharingGroup StreamExecutionEnvironment TimeDomain TimeWindow Trigger TriggerResult Window WindowAssigner",
        "pyflink.datastream.async_data_stream": "AsyncDataStream",
        "pyflink.datastream.async_retry_predicates": "empty_result_predicate exception_type_predicate has_exception_predicate",
        "pyflink.datastream.async_retry_strategies": "ExponentialBackoffDelayRetryStrategy FixedDelayRetryStrategy "
        "NoRetryStrategy RetryPredicate",
        "pyflink.datastream.checkpoint_config": "CheckpointConfig",
        "pyflink.datastream.checkpointing_mode": "CheckpointingMode",
        "pyflink.datastream.connectors": "DeliveryGuarantee Sink Source",
        "pyflink.datastream.connectors.base": "DeliveryGuarantee Sink Source",
        "pyflink.datastream.connectors.file_system": "BucketAssigner FileSink FileSource FileSourceBuilder OutputFileConfig "
        "RollingPolicy StreamFormat",
        "pyflink.datastream.connectors.kafka": "KafkaOffsetResetStrategy KafkaOffsetsInitializer "
        "KafkaRecordDeserializationSchema KafkaRecordSerializationSchema KafkaRecordSerializationSchemaBuilder KafkaSink "
        "KafkaSinkBuilder KafkaSource KafkaSourceBuilder KafkaTopicPartition KafkaTopicSelector",
        "pyflink.datastream.connectors.kinesis": "FlinkKinesisConsumer KinesisDeserializationSchema KinesisFirehoseSink "
        "KinesisFirehoseSinkBuilder KinesisStreamsSink KinesisStreamsSinkBuilder PartitionKeyGenerator",
        "pyflink.datastream.connectors.number_seq": "NumberSequenceSource",
        "pyflink.datastream.connectors.rabbitmq": "RMQConnectionConfig RMQSink RMQSource",
        "pyflink.datastream.data_stream": _STREAMS,
        "pyflink.datastream.execution_mode": "RuntimeExecutionMode",
        "pyflink.datastream.externalized_checkpoint_retention": "ExternalizedCheckpointRetention",
        "pyflink.datastream.formats": "",
        "pyflink.datastream.formats.avro": "AvroRowDeserializationSchema AvroRowSerializationSchema",
        "pyflink.datastream.formats.csv": "CsvRowDeserializationSchema CsvRowSerializationSchema",
        "pyflink.datastream.formats.json": "JsonRowDeserializationSchema JsonRowSerializationSchema",
        "pyflink.datastream.functions": _FUNCTIONS,
        "pyflink.datastream.output_tag": "OutputTag",
        "pyflink.datastream.slot_sharing_group": "MemorySize SlotSharingGroup",
        "pyflink.datastream.state": _STATES,
        "pyflink.datastream.stream_execution_environment": "StreamExecutionEnvironment",
        "pyflink.datastream.time_domain": "TimeDomain",
        "pyflink.datastream.timerservice": "TimerService",
        "pyflink.datastream.window": _WINDOWS,
        "pyflink.metrics": _METRICS,
        "pyflink.metrics.metricbase": _METRICS,
        "pyflink.util": "",
    }.items()
}

# Name → "module:name".
_ELSEWHERE: dict[str, str] = {
    "BaseBroadcastProcessFunction": "forkpoint:Function",
    "CompletableFuture": "concurrent.futures:Future",
    "DynamicEventTimeSessionWindows": "forkpoint:EventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows": "forkpoint:ProcessingTimeSessionWindows",
    "FileSourceBuilder": "forkpoint.connectors.files.builders:FileSourceBuilder",
    "FlinkKinesisConsumer": "forkpoint.connectors.kinesis.source:FlinkKinesisConsumer",
    "JobID": "builtins:str",
    "KinesisFirehoseSink": "forkpoint:FirehoseSink",
    "KinesisFirehoseSinkBuilder": "forkpoint:FirehoseSinkBuilder",
    "KinesisStreamsSink": "forkpoint:KinesisSink",
    "KinesisStreamsSinkBuilder": "forkpoint:KinesisSinkBuilder",
    "Metric": "forkpoint.functions.metrics:Metric",
    "RMQConnectionConfig": "forkpoint:RabbitMQConnectionConfig",
    "RMQSink": "forkpoint:RabbitMQSink",
    "RMQSource": "forkpoint:RabbitMQSource",
    "TypeSerializer": "forkpoint:WindowSerializer",
    "__version__": "forkpoint.pyflink.names:FLINK_VERSION",
}


def resolve(name: str) -> object:
    """The object for a PyFlink name."""
    module, _, attribute = _ELSEWHERE.get(name, f"forkpoint:{name}").partition(":")
    return getattr(importlib.import_module(module), attribute)
