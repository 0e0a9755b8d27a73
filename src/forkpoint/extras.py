"""Optional packages, forkpoint's own and third-party, and the extras that install them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from types import FrameType
from typing import Any

from forkpoint import lazy
from forkpoint.errors import ConfigError

# The extras of the connector packages, by module. Distributions have the same names, with hyphens.
CONNECTORS = {
    "forkpoint_cassandra": "cassandra",
    "forkpoint_kinesis": "kinesis",
    "forkpoint_lakehouse": "delta,iceberg",
    "forkpoint_mqtt": "mqtt",
    "forkpoint_opensearch": "opensearch",
    "forkpoint_postgres_cdc": "postgres",
    "forkpoint_rabbitmq": "rabbitmq",
    "forkpoint_redis": "redis",
}

# All of forkpoint's own packages except the core.
PACKAGES = CONNECTORS | {"forkpoint_spark_checkpoints": "spark-checkpoints"}

_EXTRAS = PACKAGES | {
    "fastapi": "server",
    "duckdb": "sql",
    "sqlglot": "sql",
    "prompt_toolkit": "sql",
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
    "boto3.session": "s3",
    "opentelemetry.sdk": "otel",
    "networkx": "graphs",
    "graphframes": "graphs",
}


class NotInstalled(ConfigError, ImportError):
    """A name belongs to one of forkpoint's packages that is not installed. The message names the extra."""


def not_installed(package: str, name: str) -> NotInstalled:
    """The error for a name or command of one of forkpoint's packages."""
    return NotInstalled(_remedy(package.replace("_", "-"), name, PACKAGES[package]))


def loader(module: str, *listings: str) -> Callable[[str], Any]:
    """Like `lazy.loader`, for a module with names from ``PACKAGES``: raises NotInstalled for names of a missing package."""
    load = lazy.loader(module, *listings)

    def load_if_installed(name: str) -> Any:
        try:
            return load(name)
        except ModuleNotFoundError as error:
            if error.name not in PACKAGES:
                raise
            raise not_installed(error.name, f"{module}.{name}") from None

    return load_if_installed


def require(package: str, feature: str) -> None:
    """Raise ConfigError naming the extra to install, unless the package is installed."""
    if not is_installed(package):
        raise ConfigError(_remedy(package, feature, _EXTRAS[package]))


def _remedy(package: str, feature: str, extra: str) -> str:
    return f'{feature} needs {package}, which is not installed; run: pip install "forkpoint[{extra}]"'


def is_own(module: str) -> bool:
    """Whether a module belongs to forkpoint or one of its packages."""
    top = module.partition(".")[0]
    return top == "forkpoint" or top in PACKAGES


def is_own_frame(frame: FrameType) -> bool:
    """Whether a frame runs code of forkpoint or of one of its packages."""
    return is_own(str(frame.f_globals.get("__name__", "")))


def installed_names() -> list[str]:
    """The names of the installed connector packages."""
    installed = set(filter(is_installed, CONNECTORS))
    return [name for name, package in lazy.listed("forkpoint.packages") if package in installed]


def is_installed(package: str) -> bool:
    """Whether an optional package can be imported."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
