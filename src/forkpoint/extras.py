"""Packages that only some features need; each belongs to an extra of the distribution."""

from __future__ import annotations

from importlib.util import find_spec

from forkpoint.errors import ConfigError

_EXTRAS = {"duckdb": "sql", "pandas": "pandas", "rocksdict": "rocksdb"}


def require(package: str, feature: str) -> None:
    """Raises ConfigError, with the extra to install, unless the package that a feature needs is there."""
    if find_spec(package) is None:
        raise ConfigError(
            f'{feature} needs {package}, which is not installed; run: pip install "forkpoint[{_EXTRAS[package]}]"'
        )
