"""What PyFlink has and forkpoint doesn't: why, and what to use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from forkpoint.errors import GraphError


@dataclass(frozen=True)
class Reason:
    """Why a name is absent, and what to use in its place."""

    why: str
    use: str


def _connector(system: str, spark_format: str | None = None) -> Reason:
    if spark_format is None:
        use = "read and write with a Spark connector (env.from_dataframe, stream.for_each_epoch), or write a Source or Sink"
    else:
        use = (
            f"read with env.from_dataframe(spark.readStream.format({spark_format!r})…load()), and write with "
            "stream.sink_to(DataFrameSink(…)) or stream.for_each_epoch(…)"
        )
    return Reason(f"{system} is reached through Spark here, not through Flink's connector", use)


_SCHEMA = Reason(
    "serialization schemas belong to Flink's connectors for messages",
    "decode and encode in map(), or with Spark's functions (from_json, from_csv, from_avro) on a DataFrame",
)
_JVM = Reason("there is no JVM behind the API", "what it configured has to be said in Python")

# Of a module and all below it.
_MODULES: dict[str, Reason] = {
    "pyflink.table": Reason(
        "the Table API and SQL are Spark's part here",
        "make a DataFrame of it: env.from_dataframe(spark.sql(…)), or spark.readStream.format('rate') in place of datagen",
    ),
    "pyflink.datastream.connectors.kafka": _connector("Kafka", "kafka"),
    "pyflink.datastream.connectors.dynamic_kafka": _connector("Kafka", "kafka"),
    "pyflink.datastream.connectors.pulsar": _connector("Pulsar", "pulsar"),
    "pyflink.datastream.connectors.elasticsearch": _connector("Elasticsearch", "es"),
    "pyflink.datastream.connectors.kinesis": _connector("Kinesis", "aws-kinesis"),
    "pyflink.datastream.connectors.jdbc": _connector("JDBC", "jdbc"),
    "pyflink.datastream.connectors.cassandra": _connector("Cassandra"),
    "pyflink.datastream.connectors.rabbitmq": _connector("RabbitMQ"),
    "pyflink.datastream.formats.avro": _SCHEMA,
    "pyflink.datastream.formats.csv": _SCHEMA,
    "pyflink.datastream.formats.json": _SCHEMA,
    "pyflink.java_gateway": _JVM,
    "pyflink.util.java_utils": _JVM,
}
_NAMES: dict[str, Reason] = {
    name: _SCHEMA
    for name in (
        "SerializationSchema", "DeserializationSchema", "SimpleStringSchema", "ByteArraySchema",
        "RowFieldExtractorSchema", "JsonRowDeserializationSchema", "JsonRowSerializationSchema",
        "CsvRowDeserializationSchema", "CsvRowSerializationSchema", "AvroRowDeserializationSchema",
        "AvroRowSerializationSchema",
    )
}  # fmt: skip


class Absent:
    """Stands where a program imports what isn't there: importing it is harmless, and any use says what to use instead."""

    __slots__ = ("_name", "_reason")

    def __init__(self, name: str, reason: Reason) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_reason", reason)

    def _refuse(self) -> NoReturn:
        raise GraphError(f"{self._name} is not there: {self._reason.why}. Instead, {self._reason.use}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        self._refuse()

    def __getitem__(self, item: Any) -> Absent:
        return self  # of an annotation

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self._name}, which forkpoint doesn't have>"


def absent_module(name: str) -> Reason | None:
    """Why a module is absent; None for one that isn't, or that PyFlink hasn't either."""
    while name:
        if name in _MODULES:
            return _MODULES[name]
        name = name.rpartition(".")[0]
    return None


def absent_name(module: str, name: str) -> Absent | None:
    """What stands for a name of a module that is absent; None where PyFlink hasn't it either."""
    reason = absent_module(module) or _NAMES.get(name)
    return None if reason is None else Absent(f"{module}.{name}", reason)
