"""The settings of a table environment, by PyFlink's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

from forkpoint.api.configuration import TYPO, Configuration
from forkpoint.errors import ConfigError
from forkpoint.functions.state.ttl import Duration, to_ms
from forkpoint.wording import parse_duration_ms

if TYPE_CHECKING:
    from forkpoint.table.session import Session

TIME_ZONE, DIALECT = "table.local-time-zone", "table.sql-dialect"
STATE_TTL, IDLE_TIMEOUT = "table.exec.state.ttl", "table.exec.source.idle-timeout"
DUPLICATES = "table.exec.source.cdc-events-duplicate"
"""Flink's option: whether sources of changes may have the same change twice."""
_KEYS = (TIME_ZONE, DIALECT, STATE_TTL, IDLE_TIMEOUT, DUPLICATES)
_CODE_LENGTH = "table.generated-code.max-length"


@dataclass(frozen=True)
class EnvironmentSettings:
    """How a table environment runs: ``in_streaming_mode()`` or ``in_batch_mode()``."""

    _streaming: bool = True
    _options: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def new_instance() -> EnvironmentSettings.Builder:
        """A builder of settings."""
        return EnvironmentSettings.Builder()

    @staticmethod
    def in_streaming_mode() -> EnvironmentSettings:
        """Input that may not end."""
        return EnvironmentSettings()

    @staticmethod
    def in_batch_mode() -> EnvironmentSettings:
        """Input that ends."""
        return EnvironmentSettings(False)

    def is_streaming_mode(self) -> bool:
        """Whether the input may not end."""
        return self._streaming

    def get_configuration(self) -> Configuration:
        """The options, with the mode."""
        mode = "STREAMING" if self._streaming else "BATCH"
        return Configuration.from_dict({**self._options, "execution.runtime-mode": mode})

    class Builder:
        """Builds settings. The methods return the builder."""

        def __init__(self) -> None:
            self._settings = EnvironmentSettings()

        def in_streaming_mode(self) -> Self:
            """Input that may not end."""
            self._settings = replace(self._settings, _streaming=True)
            return self

        def in_batch_mode(self) -> Self:
            """Input that ends."""
            self._settings = replace(self._settings, _streaming=False)
            return self

        def with_configuration(self, config: Configuration) -> Self:
            """Options of the job."""
            mode = str(config.values.get("execution.runtime-mode", "")).upper()
            streaming = mode == "STREAMING" if mode else self._settings._streaming
            self._settings = EnvironmentSettings(streaming, {**self._settings._options, **config.values})
            return self

        def build(self) -> EnvironmentSettings:
            """The settings."""
            return self._settings


def check_spelling(key: str) -> None:
    """Raise ConfigError for a key that is not one of SQL's options, but nearly."""
    near = get_close_matches(key, _KEYS, 1, TYPO)
    if near and near != [key]:
        raise ConfigError(f"there is no option {key!r}; did you mean {near[0]!r}?")


class SqlDialect(Enum):
    """The dialects of SQL that Flink has. Here, there is DEFAULT only."""

    DEFAULT = 0
    HIVE = 1


class TableConfig:
    """The options of a table environment's jobs, by Flink's keys. They are checked as the environment gets them."""

    def __init__(self, session: Session | None = None) -> None:
        self._session = session
        self._values: dict[str, str] = {} if session is None else session.settings

    @staticmethod
    def get_default() -> TableConfig:
        """Options without an environment."""
        return TableConfig()

    def set(self, key: str, value: str) -> TableConfig:
        """Set an option. Raises ConfigError."""
        if self._session is not None:
            self._session.set(key, value)
        self._values[key] = value
        return self

    def get(self, key: str, default_value: str | None) -> str | None:
        """The value of an option that was set."""
        return self._values.get(key, default_value)

    def get_configuration(self) -> Configuration:
        """The options that were set."""
        return Configuration.from_dict(self._values)

    def add_configuration(self, configuration: Configuration) -> None:
        """Set several options. Raises ConfigError."""
        for key, value in configuration.values.items():
            self.set(key, value)

    def get_local_timezone(self) -> str:
        """The time zone in which an environment, if it has this configuration, reads and prints times: UTC."""
        return self._values.get(TIME_ZONE, "UTC")

    def set_local_timezone(self, timezone_id: str) -> None:
        """Environments accept UTC only. Raises ConfigError."""
        self.set(TIME_ZONE, timezone_id)

    def set_idle_state_retention(self, duration: timedelta) -> TableConfig:
        """Set how long the state of queries is kept after its last change; 0: without limit."""
        return self.set(STATE_TTL, f"{to_ms(duration, STATE_TTL)} ms")

    def get_idle_state_retention(self) -> Duration:
        """How long the state of queries is kept after its last change; 0: without limit."""
        return Duration.of_millis(parse_duration_ms(STATE_TTL, self.get(STATE_TTL, "0 ms")))

    def get_sql_dialect(self) -> SqlDialect:
        """The dialect of SQL: DEFAULT."""
        return SqlDialect[self._values.get(DIALECT, "default").upper()]

    def set_sql_dialect(self, sql_dialect: SqlDialect) -> None:
        """Environments accept DEFAULT only. Raises ConfigError."""
        self.set(DIALECT, sql_dialect.name.lower())

    def get_max_generated_code_length(self) -> int:
        """A limit of Flink's, which has no effect."""
        return int(self._values.get(_CODE_LENGTH, 4000))

    def set_max_generated_code_length(self, max_generated_code_length: int) -> None:
        """Set a limit of Flink's, which has no effect: no code is generated."""
        self.set(_CODE_LENGTH, str(max_generated_code_length))
