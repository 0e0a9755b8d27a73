"""Optional packages, each installed by an extra of the distribution."""

from __future__ import annotations

from importlib.util import find_spec

from forkpoint.errors import ConfigError

_EXTRAS = {
    "duckdb": "sql",
    "pandas": "pandas",
    "rocksdict": "rocksdb",
    "hdfs_native": "hdfs",
    "confluent_kafka": "kafka",
    "fastavro": "avro",
    "google.protobuf": "protobuf",
    "confluent_kafka.schema_registry": "schema-registry",
    "authlib": "schema-registry",
    "sqlalchemy": "database",
    "psycopg": "postgres",
    "pymysql": "mysql",
    "deltalake": "delta",
    "pyiceberg": "iceberg",
    "boto3": "kinesis",
    "boto3.session": "s3",
    "pika": "rabbitmq",
    "paho.mqtt": "mqtt",
    "redis": "redis",
    "opensearchpy": "opensearch",
    "cassandra": "cassandra",
    "opentelemetry.sdk": "otel",
}


def require(package: str, feature: str) -> None:
    """Raise ConfigError, naming the extra to install, unless the package is installed."""
    if not is_installed(package):
        raise ConfigError(
            f'{feature} needs {package}, which is not installed; run: pip install "forkpoint[{_EXTRAS[package]}]"'
        )


def is_installed(package: str) -> bool:
    """Whether an optional package can be imported."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False
