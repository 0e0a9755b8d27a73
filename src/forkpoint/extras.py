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
}


def require(package: str, feature: str) -> None:
    """Raise ConfigError, naming the extra to install, unless the package is installed."""
    if find_spec(package) is None:
        raise ConfigError(
            f'{feature} needs {package}, which is not installed; run: pip install "forkpoint[{_EXTRAS[package]}]"'
        )
