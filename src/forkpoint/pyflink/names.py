"""Maps PyFlink's names to forkpoint's objects."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from operator import attrgetter

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
_TYPES = """
    BasicArrayTypeInfo BasicTypeInfo DateTypeInfo ExternalTypeInfo InstantTypeInfo ListTypeInfo MapTypeInfo
    ObjectArrayTypeInfo PickledBytesTypeInfo PrimitiveArrayTypeInfo RowTypeInfo SqlTimeTypeInfo TimeTypeInfo
    TimestampTypeInfo TupleTypeInfo TypeInformation Types
"""
_BACKENDS = "EmbeddedRocksDBStateBackend HashMapStateBackend StateBackend"
_FORMATS = """
    AvroBulkWriters AvroInputFormat AvroSchema CsvBulkWriters CsvReaderFormat CsvSchema CsvSchemaBuilder
    GenericRecordAvroTypeInfo ParquetBulkWriters ParquetColumnarRowInputFormat
"""
_ENVIRONMENTS = "EnvironmentSettings Instant StreamTableEnvironment TableEnvironment"
_CATALOGS = "Catalog CatalogDescriptor ObjectIdentifier ObjectPath"
_EXPRESSIONS = """
    CURRENT_RANGE CURRENT_ROW UNBOUNDED_RANGE UNBOUNDED_ROW and_ array atan2 call call_sql coalesce col concat concat_ws
    convert_tz current_database current_date current_time current_timestamp current_watermark date_format e from_unixtime
    if_then_else json_array json_array_agg json_object json_object_agg json_string lag lead lit local_time local_timestamp
    log map_ map_from_arrays negative not_ null_of or_ pi rand rand_integer range_ row row_interval source_watermark
    timestamp_diff to_date to_timestamp to_timestamp_ltz unix_timestamp uuid with_all_columns with_columns without_columns
"""
_TABLES = "AggregatedTable GroupWindowedTable GroupedTable OverWindowedTable"
_UNITS = """
    JsonExistsOnError JsonOnNull JsonQueryOnEmptyOrError JsonQueryWrapper JsonType JsonValueOnEmptyOrError TimeIntervalUnit
    TimePointUnit
"""
_COLUMN_TYPES = """
    ArrayType BigIntType BinaryType BooleanType CharType DateType DecimalType DoubleType FloatType IntType
    LocalZonedTimestampType MapType NullType SmallIntType TimeType TimestampType TinyIntType VarBinaryType VarCharType
"""
_STORAGES = "CheckpointStorage FileSystemCheckpointStorage JobManagerCheckpointStorage"

# Module → its names, which are attributes of `forkpoint` except for the names in `_ELSEWHERE`. All modules provide all names:
# PyFlink's modules also have the names that they import, and releases move names.
MODULES: dict[str, Sequence[str]] = {
    module: names.split()
    for module, names in {
        "pyflink": "",
        "pyflink.version": "__version__",
        "pyflink.common": "ByteArraySchema CompletableFuture Configuration DeserializationSchema Duration Encoder "
        "ExecutionConfig JobClient JobExecutionResult JobID JobStatus RestartStrategies Row RowKind SerializationSchema "
        "SimpleStringSchema Time TypeInformation TypeSerializer Types WatermarkStrategy",
        "pyflink.common.completable_future": "CompletableFuture",
        "pyflink.common.config_options": "ConfigOption ConfigOptions",
        "pyflink.common.configuration": "Configuration",
        "pyflink.common.execution_config": "ExecutionConfig",
        "pyflink.common.job_client": "JobClient",
        "pyflink.common.job_execution_result": "JobExecutionResult",
        "pyflink.common.job_id": "JobID",
        "pyflink.common.job_status": "JobStatus",
        "pyflink.common.restart_strategy": "RestartStrategies",
        "pyflink.common.serialization": "BulkWriterFactory ByteArraySchema DeserializationSchema Encoder RowFieldExtractorSchema "
        "SerializationSchema SimpleStringSchema",
        "pyflink.common.serializer": "TypeSerializer",
        "pyflink.common.time": "Duration Instant Time",
        "pyflink.common.typeinfo": _TYPES,
        "pyflink.common.types": "Row RowKind",
        "pyflink.common.watermark_strategy": "TimestampAssigner WatermarkStrategy",
        "pyflink.datastream": f"{_BACKENDS} {_FUNCTIONS} {_STORAGES} {_STREAMS} AsyncDataStream CheckpointConfig "
        "CheckpointingMode CountWindow ExternalizedCheckpointRetention GlobalWindow MemorySize MergingWindowAssigner "
        "OutputTag RuntimeExecutionMode SlotSharingGroup StreamExecutionEnvironment "
        "TimeDomain TimeWindow Trigger TriggerResult Window WindowAssigner",
        "pyflink.datastream.async_data_stream": "AsyncDataStream",
        "pyflink.datastream.async_retry_predicates": "empty_result_predicate exception_type_predicate has_exception_predicate",
        "pyflink.datastream.async_retry_strategies": "ExponentialBackoffDelayRetryStrategy FixedDelayRetryStrategy "
        "NoRetryStrategy RetryPredicate",
        "pyflink.datastream.checkpoint_config": "CheckpointConfig",
        "pyflink.datastream.checkpoint_storage": _STORAGES,
        "pyflink.datastream.checkpointing_mode": "CheckpointingMode",
        "pyflink.datastream.connectors": "DeliveryGuarantee Sink Source",
        "pyflink.datastream.connectors.base": "DeliveryGuarantee Sink Source",
        "pyflink.datastream.connectors.file_system": "BucketAssigner DefaultRollingPolicy FileSink FileSource "
        "FileSourceBuilder OnCheckpointRollingPolicy OutputFileConfig RollingPolicy StreamFormat",
        "pyflink.datastream.connectors.kafka": "FlinkKafkaConsumer FlinkKafkaProducer KafkaOffsetResetStrategy "
        "KafkaOffsetsInitializer KafkaRecordDeserializationSchema KafkaRecordSerializationSchema "
        "KafkaRecordSerializationSchemaBuilder KafkaSink "
        "KafkaSinkBuilder KafkaSource KafkaSourceBuilder KafkaTopicPartition KafkaTopicSelector Semantic",
        "pyflink.datastream.connectors.kinesis": "FlinkKinesisConsumer KinesisDeserializationSchema KinesisFirehoseSink "
        "KinesisFirehoseSinkBuilder KinesisStreamsSink KinesisStreamsSinkBuilder PartitionKeyGenerator",
        "pyflink.datastream.connectors.number_seq": "NumberSequenceSource",
        "pyflink.datastream.connectors.rabbitmq": "RMQConnectionConfig RMQSink RMQSource",
        "pyflink.datastream.data_stream": _STREAMS,
        "pyflink.datastream.execution_mode": "RuntimeExecutionMode",
        "pyflink.datastream.externalized_checkpoint_retention": "ExternalizedCheckpointRetention",
        "pyflink.datastream.formats": "",
        "pyflink.datastream.formats.avro": "AvroBulkWriters AvroInputFormat AvroRowDeserializationSchema "
        "AvroRowSerializationSchema AvroSchema GenericRecordAvroTypeInfo",
        "pyflink.datastream.formats.csv": "CsvBulkWriters CsvReaderFormat CsvRowDeserializationSchema "
        "CsvRowSerializationSchema CsvSchema CsvSchemaBuilder",
        "pyflink.datastream.formats.json": "JsonRowDeserializationSchema JsonRowSerializationSchema",
        "pyflink.datastream.formats.parquet": "ParquetBulkWriters ParquetColumnarRowInputFormat",
        "pyflink.datastream.functions": f"{_FUNCTIONS} IN IN1 IN2 KEY KeyedStateStore OUT W W2",
        "pyflink.datastream.output_tag": "OutputTag",
        "pyflink.datastream.slot_sharing_group": "MemorySize SlotSharingGroup",
        "pyflink.datastream.state": f"{_STATES} AppendingState K MergingState T V",
        "pyflink.datastream.state_backend": _BACKENDS,
        "pyflink.datastream.stream_execution_environment": "StreamExecutionEnvironment",
        "pyflink.datastream.time_domain": "TimeDomain",
        "pyflink.datastream.timerservice": "TimerService",
        "pyflink.datastream.window": f"{_WINDOWS} MAX_LONG_VALUE MIN_LONG_VALUE",
        "pyflink.metrics": _METRICS,
        "pyflink.metrics.metricbase": _METRICS,
        "pyflink.table": "AggregateFunction ChangelogMode DataTypes EnvironmentSettings ExplainDetail Expression "
        "FormatDescriptor FunctionContext GroupWindowedTable GroupedTable ListView MapView OverWindowedTable ResultKind Row "
        "RowKind ScalarFunction Schema SqlDialect StatementSet StreamTableEnvironment Table TableConfig TableDescriptor "
        "TableAggregateFunction TableEnvironment TableFunction TablePipeline TableResult TableSchema WindowGroupedTable",
        "pyflink.table.catalog": f"{_CATALOGS} ResolvedSchema",
        "pyflink.table.changelog_mode": "ChangelogMode",
        "pyflink.table.data_view": "ListView MapView",
        "pyflink.table.environment_settings": "EnvironmentSettings",
        "pyflink.table.explain_detail": "ExplainDetail",
        "pyflink.table.expression": f"{_UNITS} Expression",
        "pyflink.table.expressions": _EXPRESSIONS,
        "pyflink.table.result_kind": "ResultKind",
        "pyflink.table.schema": "Schema",
        "pyflink.table.sql_dialect": "SqlDialect",
        "pyflink.table.statement_set": "StatementSet",
        "pyflink.table.table": f"{_TABLES} FlatAggregateTable Table WindowGroupedTable",
        "pyflink.table.table_config": "TableConfig",
        "pyflink.table.table_descriptor": "FormatDescriptor TableDescriptor",
        "pyflink.table.table_environment": "StreamTableEnvironment TableEnvironment",
        "pyflink.table.table_pipeline": "TablePipeline",
        "pyflink.table.table_result": "CloseableIterator TableResult",
        "pyflink.table.table_schema": "TableSchema",
        "pyflink.table.types": f"{_COLUMN_TYPES} DataType DataTypes Row RowField RowKind RowType",
        "pyflink.table.udf": "AggregateFunction FunctionContext ScalarFunction TableAggregateFunction TableFunction udaf udf "
        "udtaf udtf",
        "pyflink.table.window": "GroupWindow Over OverWindow Session Slide Tumble",
        "pyflink.util": "",
    }.items()
}

# Modules that Flink 2 removed.
MODULES |= {
    "pyflink.datastream.externalized_checkpoint_cleanup": ["ExternalizedCheckpointCleanup"],
    "pyflink.datastream.time_characteristic": ["TimeCharacteristic"],
}
_FORMER = ("FsStateBackend", "MemoryStateBackend", "RocksDBStateBackend")

KNOWN = {*_FORMER, *(name for names in MODULES.values() for name in names)}
"""Every name that maps to an object of forkpoint."""

# Name → "module:name".
_ELSEWHERE: dict[str, str] = {
    "AppendingState": "forkpoint:State",
    "BaseBroadcastProcessFunction": "forkpoint:Function",
    "BasicArrayTypeInfo": "forkpoint:Types.BASIC_ARRAY",
    "BasicTypeInfo": "forkpoint.pyflink.typeinfo:BasicTypeInfo",
    "BulkWriterFactory": "forkpoint.connectors.files.builders:BulkWriterFactory",
    "CompletableFuture": "concurrent.futures:Future",
    "ConfigOption": "forkpoint.pyflink.options:ConfigOption",
    "ConfigOptions": "forkpoint.pyflink.options:ConfigOptions",
    "DateTypeInfo": "forkpoint:Types.SQL_DATE",
    "DefaultRollingPolicy": "forkpoint:RollingPolicy",
    "DynamicEventTimeSessionWindows": "forkpoint:EventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows": "forkpoint:ProcessingTimeSessionWindows",
    "ExternalTypeInfo": "forkpoint.pyflink.typeinfo:ExternalTypeInfo",
    "ExternalizedCheckpointCleanup": "forkpoint:ExternalizedCheckpointRetention",
    "FileSourceBuilder": "forkpoint.connectors.files.builders:FileSourceBuilder",
    "FlinkKinesisConsumer": "forkpoint_kinesis.source:FlinkKinesisConsumer",
    "FsStateBackend": "forkpoint.pyflink.former:HashMapStateBackend",
    "InstantTypeInfo": "forkpoint:Types.INSTANT",
    "JobID": "builtins:str",
    "KeyedStateStore": "forkpoint:RuntimeContext",
    "KinesisFirehoseSink": "forkpoint:FirehoseSink",
    "KinesisFirehoseSinkBuilder": "forkpoint:FirehoseSinkBuilder",
    "KinesisStreamsSink": "forkpoint:KinesisSink",
    "KinesisStreamsSinkBuilder": "forkpoint:KinesisSinkBuilder",
    "ListTypeInfo": "forkpoint:Types.LIST",
    "MAX_LONG_VALUE": "forkpoint:MAX_WATERMARK",
    "MIN_LONG_VALUE": "forkpoint:MIN_WATERMARK",
    "MapTypeInfo": "forkpoint:Types.MAP",
    "MemoryStateBackend": "forkpoint.pyflink.former:HashMapStateBackend",
    "MergingState": "forkpoint:State",
    "Metric": "forkpoint.functions.metrics:Metric",
    "ObjectArrayTypeInfo": "forkpoint:Types.OBJECT_ARRAY",
    "OnCheckpointRollingPolicy": "forkpoint:RollingPolicy",
    "PickledBytesTypeInfo": "forkpoint:Types.PICKLED_BYTE_ARRAY",
    "PrimitiveArrayTypeInfo": "forkpoint:Types.PRIMITIVE_ARRAY",
    "RMQConnectionConfig": "forkpoint:RabbitMQConnectionConfig",
    "RMQSink": "forkpoint:RabbitMQSink",
    "RMQSource": "forkpoint:RabbitMQSource",
    "RocksDBStateBackend": "forkpoint.pyflink.former:EmbeddedRocksDBStateBackend",
    "RowTypeInfo": "forkpoint.pyflink.typeinfo:RowTypeInfo",
    "SqlTimeTypeInfo": "forkpoint.pyflink.typeinfo:SqlTimeTypeInfo",
    "StreamExecutionEnvironment": "forkpoint.pyflink.environment:StreamExecutionEnvironment",
    "TimeTypeInfo": "forkpoint:Types.SQL_TIME",
    "TimestampTypeInfo": "forkpoint:Types.SQL_TIMESTAMP",
    "TupleTypeInfo": "forkpoint.pyflink.typeinfo:TupleTypeInfo",
    "TypeSerializer": "forkpoint:WindowSerializer",
    "__version__": "forkpoint.pyflink.names:FLINK_VERSION",
    # tables
    **{name: f"forkpoint.pyflink.datatypes:{name}" for name in f"{_COLUMN_TYPES} RowType".split()},
    **{name: f"forkpoint.pyflink.tables:{name}" for name in _ENVIRONMENTS.split()},
    **{name: f"forkpoint.table.api.expression:{name}" for name in _UNITS.split()},
    **{name: f"forkpoint.table.api.expressions:{name}" for name in _EXPRESSIONS.split()},
    **{
        name: f"forkpoint.table.api.table:{name}"
        for name in ["AggregatedTable", "GroupWindowedTable", "GroupedTable", "OverWindowedTable"]
    },
    **{name: f"forkpoint.table.api.window:{name}" for name in ("GroupWindow", "OverWindow")},
    **{name: f"forkpoint.table.api.views:{name}" for name in ("ListView", "MapView")},
    **{name: f"forkpoint.table.api.catalogs:{name}" for name in _CATALOGS.split()},
    "ExplainDetail": "forkpoint.table.explanation:ExplainDetail",
    "RowField": "forkpoint.table.data_types:RowField",
    "SqlDialect": "forkpoint.table.api.settings:SqlDialect",
    "TableSchema": "forkpoint.table.api.resolved_schema:TableSchema",
    "FlatAggregateTable": "forkpoint.table.api.table:AggregatedTable",
    "WindowGroupedTable": "forkpoint.table.api.table:GroupedTable",
    # file formats
    **{name: f"forkpoint.pyflink.formats:{name}" for name in _FORMATS.split()},
    # type variables
    **{name: f"forkpoint.types.variables:{name}" for name in ("IN", "IN1", "IN2", "K", "OUT", "T", "V", "W")},
    "KEY": "forkpoint.types.variables:K",
    "W2": "forkpoint.types.variables:S",
    # Flink 1
    **{
        name: f"forkpoint.pyflink.former:{name}"
        for name in f"{_BACKENDS} {_STORAGES} FlinkKafkaConsumer FlinkKafkaProducer RestartStrategies Semantic "
        "TimeCharacteristic".split()
    },
}


_OF_TABLES = {"AggregateFunction": "forkpoint:SqlAggregateFunction"}
"""Names that mean something else in the modules of tables."""


def resolve(name: str, of: str = "") -> object:
    """The object for a PyFlink name. ``of``: the module in which a program looks for it."""
    elsewhere = {**_ELSEWHERE, **_OF_TABLES} if of.startswith("pyflink.table") else _ELSEWHERE
    module, _, path = elsewhere.get(name, f"forkpoint:{name}").partition(":")
    return attrgetter(path)(importlib.import_module(module))


def home(name: str) -> str | None:
    """The PyFlink module that documents a name; None for an unknown name."""
    return next((module for module in sorted(MODULES, key=len) if name in MODULES[module]), None)
