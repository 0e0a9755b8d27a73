"""The PyFlink names that forkpoint lacks, with reasons and alternatives."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn

from forkpoint.errors import GraphError
from forkpoint.pyflink.names import FLINK_VERSION, KNOWN, MODULES, home
from forkpoint.types.variables import T


@dataclass(frozen=True)
class Reason:
    """Why a name is absent, and the alternative."""

    why: str
    use: str


# Replacements of Flink's connectors.
_OWN_SINKS = {
    "JDBC": "write with DatabaseSink(url, table, key=…), exactly once to PostgreSQL, MariaDB, MySQL and SQLite; read with "
    "SqlLookup or env.from_dataframe(spark.read.jdbc(…))",
    "Cassandra": "write with CassandraSink(hosts, keyspace, table)",
    "Elasticsearch": "write to OpenSearch with OpenSearchSink(hosts, index, id=…); to Elasticsearch itself with "
    "stream.for_each_epoch(…) and its client",
}


def _connector(system: str, spark_format: str | None) -> Reason:
    if system in _OWN_SINKS:
        return Reason(f"{system} has another sink here than Flink's connector", _OWN_SINKS[system])
    why = f"{system} is accessed through Spark, not through Flink's connector"
    if spark_format is None:
        return Reason(why, "write with stream.for_each_epoch(…), or implement a Source or Sink")
    return Reason(
        why,
        f"read with env.from_dataframe(spark.readStream.format({spark_format!r})…load()), and write with "
        f"stream.for_each_epoch(lambda df, epoch: df.write.format({spark_format!r})…save())",
    )


_JVM = Reason("it belongs to Flink's JVM, which is not used here", "implement it in Python")
_INTERNAL = Reason("it is internal to PyFlink", "use the public names")
_BULK = Reason("it is a Java format", "use FileSource.parquet, csv or json, and FileSink.parquet, csv or json")
_STATE_BACKEND = Reason(
    "the state backend is set by an option", "set state.backend.type to 'lmdb', 'rocksdb' or 'hashmap' in the Configuration"
)
_CHECKPOINT_STORAGE = Reason("checkpoint storage is set by an option", "call env.set_state_root(URL)")


_PLAN = Reason("a plan is no file here", "a savepoint has the plan of its query; forkpoint plan compares it with another one")
_CATALOG = Reason("catalogues are in memory", "create tables with execute_sql(), and list them with list_tables()")
_MODULE = Reason("there are no modules", "give a function a name with create_temporary_system_function()")
_NO_TYPE = Reason("SQL has no such type here", "see the types in docs/sql.md")


def _each(of: dict[str, T]) -> dict[str, T]:
    return {name: value for names, value in of.items() for name in names.split()}


# Absent modules, with their submodules.
_MODULES = _each(
    {
        "pyflink.common.constants pyflink.common.input_dependency_constraint pyflink.datastream.utils pyflink.fn_execution "
        "pyflink.serializers pyflink.testing pyflink.util.api_stability_decorators": _INTERNAL,
        "pyflink.common.io pyflink.common.utils pyflink.find_flink_home pyflink.java_gateway pyflink.pyflink_gateway_server "
        "pyflink.util.exceptions pyflink.util.java_utils": _JVM,
        "pyflink.dataframe": Reason("DataFrames are Spark's here", "create one with Spark and pass it to env.from_dataframe(df)"),
        "pyflink.datastream.connectors.cassandra": _connector("Cassandra", None),
        "pyflink.datastream.connectors.dynamic_kafka": Reason("it has no counterpart", "use KafkaSource"),
        "pyflink.datastream.connectors.elasticsearch": _connector("Elasticsearch", None),
        "pyflink.datastream.connectors.hybrid_source": Reason(
            "sources cannot be chained", "write the history to the live source's system, or run two jobs in sequence"
        ),
        "pyflink.datastream.connectors.jdbc": _connector("JDBC", "jdbc"),
        "pyflink.datastream.connectors.pulsar": _connector("Pulsar", None),
        "pyflink.datastream.formats.orc pyflink.datastream.formats.parquet": _BULK,
        "pyflink.shell": Reason("there is no shell", "use Python's"),
        "pyflink.table.compiled_plan pyflink.table.plan_reference": _PLAN,
        "pyflink.table.functions": _INTERNAL,
        "pyflink.table.descriptors": Reason("Flink has replaced it", "use TableDescriptor"),
        "pyflink.table.model_descriptor": Reason("SQL has no models here", "call the model in a function: udf()"),
        "pyflink.table.module": _MODULE,
        "pyflink.table.resolved_expression pyflink.table.serializers pyflink.table.utils": _INTERNAL,
    }
)

# Absent names in any module.
_NAMES = _each(
    {
        "AssignerWithPeriodicWatermarksWrapper InputFormat JavaFunctionWrapper JavaObjectWrapper RowDataBulkWriterFactory "
        "SinkFunction SourceFunction "
        "add_jars_to_context_class_loader convert_py4j_exception from_j_duration get_field get_field_value get_gateway "
        "get_j_env_configuration invoke_method is_instance_of is_local_deployment load_java_class to_j_duration to_jarray": _JVM,
        "AsyncFunctionDescriptor BasicType FunctionWrapper InputDependencyConstraint LocalTimeTypeInfo Min NullByteKeySelector "
        "PassThroughAllWindowFunction PassThroughWindowFunction PickleSerializer Public ReduceFunctionWrapper "
        "ResultTypeQueryable "
        "StreamTransformer SupportsPreprocessing VoidNamespaceSerializer WINDOW_STATE_NAME WindowOperationDescriptor "
        "InternalIterableAllWindowFunction InternalIterableProcessAllWindowFunction InternalIterableProcessWindowFunction "
        "InternalIterableWindowFunction InternalProcessAllWindowContext InternalProcessWindowContext "
        "InternalSingleValueAllWindowFunction InternalSingleValueProcessAllWindowFunction "
        "InternalSingleValueProcessWindowFunction InternalSingleValueWindowFunction InternalWindowFunction "
        "add_version_doc convert_to_python_obj keyword long_to_int_with_bit_mixing mod_inverse void": _INTERNAL,
        "CachedDataStream": Reason("a stream does not outlive its job", "write it with sink_to(FileSink…) and read that"),
        "BulkFormat StreamingFileSink": _BULK,
        "CustomCheckpointStorage": _CHECKPOINT_STORAGE,
        "CustomStateBackend PredefinedOptions RocksDBNativeMetricOptions": _STATE_BACKEND,
        "FileCompactStrategy FileCompactor": Reason(
            "a file is final once its epoch is committed", "make larger files with a longer checkpoint interval"
        ),
        "FileEnumeratorProvider FileSplitAssignerProvider": Reason(
            "file discovery and split assignment are not configurable", "leave it out"
        ),
        "KinesisShardAssigner": Reason("the driver assigns shards to tasks", "leave it out"),
        "WatermarkTracker": Reason(
            "sources are aligned by their watermarks", "call WatermarkStrategy.with_watermark_alignment(…)"
        ),
        "FlinkKafkaConsumerBase FlinkKafkaProducerBase": Reason(
            "Flink has replaced it", "use KafkaSource and KafkaSink; their builders have the same settings"
        ),
        "SimpleStringValueKafkaRecordDeserializationSchema": Reason(
            "it has no counterpart", "use set_value_only_deserializer(SimpleStringSchema())"
        ),
        "CatalogBaseTable CatalogColumnStatistics CatalogDatabase CatalogFunction CatalogModel "
        "CatalogPartition CatalogPartitionSpec CatalogTableStatistics Column ComputedColumn Constraint HiveCatalog JdbcCatalog "
        "MetadataColumn PhysicalColumn Procedure UniqueConstraint WatermarkSpec": _CATALOG,
        "CompiledPlan PlanReference": _PLAN,
        "HiveModule Module ModuleEntry": _MODULE,
        "ModelDescriptor": Reason("SQL has no models here", "call the model in a function: udf()"),
        "AsyncScalarFunction": Reason(
            "functions of SQL are not asynchronous", "look it up in a stream: AsyncDataStream, lookup_join"
        ),
        "AtomicType DayTimeIntervalType FractionalType IntegralType ListViewType MapViewType MultisetType NumericType RawType "
        "Resolution UserDefinedType YearMonthIntervalType ZonedTimestampType": _NO_TYPE,
        "descriptor object_of temporal_overlaps": Reason("SQL has no such function here", "write one in Python: udf()"),
        "ACC ArrowSerializer DataView BatchedSerializer DelegatingAsyncScalarFunction DelegatingPandasAggregateFunction "
        "DelegatingScalarFunction DelegationTableFunction Deprecated Experimental ImperativeAggregateFunction Internal "
        "OverWindowPartitioned OverWindowPartitionedOrdered OverWindowPartitionedOrderedPreceding "
        "PandasAggregateFunctionWrapper PublicEvolving ResolvedExpression SessionWithGap SessionWithGapOnTime SlideWithSize "
        "SlideWithSizeAndSlide SlideWithSizeAndSlideOnTime TumbleWithSize TumbleWithSizeOnTime "
        "UserDefinedAggregateFunctionWrapper UserDefinedAsyncScalarFunctionWrapper UserDefinedFunction "
        "UserDefinedFunctionWrapper UserDefinedScalarFunctionWrapper UserDefinedTableFunctionWrapper create_arrow_schema "
        "create_url_class_loader from_arrow_type pickled_bytes_to_python_converter to_arrow_type to_expression_jarray "
        "to_j_explain_detail_arr tz_convert_from_internal": _INTERNAL,
        "RestartStrategyConfiguration": Reason(
            "the restart strategy is set by an option",
            "set restart-strategy.type, or call env.set_restart_strategy(RestartStrategy…)",
        ),
    }
)


# Flink 1's names in absent modules.
_HOMES = _each(
    {
        "JdbcConnectionOptions JdbcExecutionOptions JdbcSink": "pyflink.datastream.connectors.jdbc",
        "AvroParquetReaders AvroParquetWriters": "pyflink.datastream.formats.parquet",
        "PulsarSink PulsarSource StartCursor StopCursor": "pyflink.datastream.connectors.pulsar",
    }
)


class Absent:
    """A placeholder for an absent name. Importing it is harmless; any use raises GraphError with the alternative."""

    __slots__ = ("_name", "_reason")

    def __init__(self, name: str, reason: Reason) -> None:
        self._name = name
        self._reason = reason

    def _refuse(self) -> NoReturn:
        raise GraphError(f"{self._name} is not supported: {self._reason.why}. Instead, {self._reason.use}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self._refuse()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        self._refuse()

    def __getitem__(self, item: Any) -> Absent:
        return self  # in an annotation

    def __or__(self, other: Any) -> Any:
        return Any  # in an annotation

    __ror__ = __or__

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self._name}, not supported by forkpoint>"


def absent_module(name: str) -> Reason | None:
    """Why a module is absent; None if it exists here, or does not exist in PyFlink."""
    while name:
        if name in _MODULES:
            return _MODULES[name]
        name = name.rpartition(".")[0]
    return None


def absent_name(module: str, name: str) -> Absent | None:
    """The placeholder for an absent name of a module; None if the name does not exist in PyFlink."""
    reason = absent_module(f"{module}.{name}") or _NAMES.get(name) or absent_module(_HOMES.get(name, ""))
    return None if reason is None else Absent(f"{module}.{name}", reason)


def unknown(path: str) -> str:
    """The error for a module or name that neither forkpoint nor PyFlink has."""
    parent, _, name = path.rpartition(".")
    similar = get_close_matches(path, MODULES.keys() - {parent}, 1, 0.9)
    similar += [f"{home(other)}.{other}" for other in get_close_matches(name, KNOWN, 1, 0.8)]
    hint = f"; did you mean {similar[0]}?" if similar else ""
    return f"PyFlink {FLINK_VERSION} has no {name!r} in {parent}{hint}"
