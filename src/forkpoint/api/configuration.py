"""PyFlink's ``Configuration`` and the options that its keys set."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Self, TypeVar

from forkpoint.errors import ConfigError
from forkpoint.graph.options import (
    Autoscale,
    CheckpointingMode,
    CheckpointOptions,
    ExternalizedCheckpointRetention,
    JobOptions,
    RestartStrategy,
    RuntimeExecutionMode,
    SavepointSchedule,
)
from forkpoint.wording import parse_bytes, parse_duration_ms

E = TypeVar("E", bound=Enum)


class Configuration:
    """Options by Flink's keys, for ``get_execution_environment(configuration)`` and ``env.configure(...)``.

    A plain dict works, too. Keys are checked when the configuration is applied. Configurations with equal options are equal.
    """

    def __init__(self, other: Configuration | None = None) -> None:
        self.values: dict[str, Any] = {} if other is None else dict(other.values)

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:
        """Create a configuration with these options."""
        configuration = cls()
        configuration.values.update(map)
        return configuration

    def set_string(self, key: str, value: str) -> Self:
        """Set a text option. All setters return the configuration."""
        return self._set(key, value)

    def set_integer(self, key: str, value: int) -> Self:
        """Set an integer option."""
        return self._set(key, value)

    def set_float(self, key: str, value: float) -> Self:
        """Set a float option."""
        return self._set(key, value)

    def set_boolean(self, key: str, value: bool) -> Self:
        """Set a boolean option."""
        return self._set(key, value)

    def set_bytearray(self, key: str, value: bytes | bytearray) -> Self:
        """Set a bytes option."""
        return self._set(key, bytearray(value))

    def get_string(self, key: str, default_value: str) -> str:
        """The option as text, or the default if it is not set."""
        return _as_text(self.values.get(key, default_value))

    def get_integer(self, key: str, default_value: int) -> int:
        """The option as an int; ConfigError for any other value."""
        return int(_number(int)(key, self.values.get(key, default_value)))

    def get_float(self, key: str, default_value: float) -> float:
        """The option as a float; ConfigError for any other value."""
        return float(_number(float)(key, self.values.get(key, default_value)))

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """The option as a bool; ConfigError for any other value."""
        return parse_boolean(key, self.values.get(key, default_value))

    def get_bytearray(self, key: str, default_value: bytes | bytearray) -> bytearray:
        """The option as a bytearray."""
        return bytearray(self.values.get(key, default_value))

    def contains_key(self, key: str) -> bool:
        """Whether the option is set."""
        return key in self.values

    def key_set(self) -> set[str]:
        """The keys of all options that are set."""
        return set(self.values)

    def to_dict(self) -> dict[str, str]:
        """All options as text."""
        return {key: _as_text(value) for key, value in self.values.items()}

    def add_all(self, other: Configuration, prefix: str | None = None) -> Self:
        """Add another configuration's options, with ``prefix`` before their keys."""
        for key, value in other.values.items():
            self._set((prefix or "") + key, value)
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Add all options to a dict, with the values that were set."""
        target_dict.update(self.values)

    def remove_config(self, key: str) -> bool:
        """Remove an option, and return whether it was set."""
        return self.values.pop(key, self) is not self

    @staticmethod
    def parse_list_value(value: str | None) -> list[str]:
        """Split the text of a list option: ``[a, b]``, ``a;b``, or lines ``- a``."""
        text = (value or "").strip()
        if text.startswith("[") and text.endswith("]"):
            items = text[1:-1].split(",")
        elif text.startswith("- "):
            items = [line.strip().removeprefix("- ") for line in text.splitlines()]
        else:
            items = text.split(";")
        return [item.strip().strip("'\"") for item in items if item.strip()]

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Configuration) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self.to_dict().items()))

    def __str__(self) -> str:
        return "{" + ", ".join(f"{key}={value}" for key, value in self.to_dict().items()) + "}"

    def __repr__(self) -> str:
        return f"Configuration({self})"

    def _set(self, key: str, value: Any) -> Self:
        self.values[key] = value
        return self


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_boolean(key: str, value: Any) -> bool:
    """The bool for a bool, "true" or "false"; ConfigError for anything else."""
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{key} = {value!r} is neither 'true' nor 'false'")
    return text == "true"


def _number(kind: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    def parse(key: str, value: Any) -> Any:
        try:
            return kind(value)
        except (TypeError, ValueError):
            raise ConfigError(f"{key} = {value!r} is not {'an integer' if kind is int else 'a number'}") from None

    return parse


def _member(enum: type[E]) -> Callable[[str, Any], E]:
    def parse(key: str, value: Any) -> E:
        if isinstance(value, enum):
            return value
        name = str(value).strip().upper().replace("-", "_")
        if name not in enum.__members__:
            raise ConfigError(f"{key} = {value!r}: expected one of {', '.join(enum.__members__)}")
        return enum[name]

    return parse


def _text(key: str, value: Any) -> str:
    return str(value)


def _names(key: str, value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    return tuple(str(name).strip() for name in names if str(name).strip())


_BACKENDS = {"hashmap": "dict", "memory": "dict", "dict": "dict", "lmdb": "lmdb", "rocksdb": "rocksdb"}
_STRATEGIES = {
    **dict.fromkeys(("none", "off", "disable"), "none"),
    **dict.fromkeys(("fixed-delay", "fixeddelay"), "fixed-delay"),
    **dict.fromkeys(("exponential-delay", "exponentialdelay"), "exponential-delay"),
    **dict.fromkeys(("failure-rate", "failurerate"), "failure-rate"),
}


def _choice(choices: Mapping[str, str]) -> Callable[[str, Any], str]:
    def parse(key: str, value: Any) -> str:
        name = str(value).strip().lower()
        if name not in choices:
            raise ConfigError(f"{key} = {value!r}: expected one of {', '.join(sorted(choices))}")
        return choices[name]

    return parse


Parser = Callable[[str, Any], Any]

_JOB_KEYS: dict[str, tuple[str, Parser]] = {
    "parallelism.default": ("parallelism", _number(int)),
    "pipeline.max-parallelism": ("max_parallelism", _number(int)),
    "pipeline.auto-watermark-interval": ("auto_watermark_interval_ms", parse_duration_ms),
    "execution.checkpointing.dir": ("state_root", _text),
    "execution.checkpointing.savepoint-dir": ("savepoint_directory", _text),
    "state.backend.type": ("state_backend", _choice(_BACKENDS)),
    "execution.runtime-mode": ("runtime_mode", _member(RuntimeExecutionMode)),
    "execution.engine": ("engine", _choice({"spark": "spark", "local": "local"})),
    "execution.ship-environment": ("ship_env", parse_boolean),
    "execution.pass-environment": ("pass_env", _names),
    "execution.memory-per-subtask": ("memory_bytes", parse_bytes),
    "execution.silence-alert": ("silence_ms", parse_duration_ms),
    "execution.functions-over-columns": ("over_columns", parse_boolean),
    "execution.allow-pickle": ("allow_pickle", parse_boolean),
}
_CHECKPOINT_KEYS: dict[str, tuple[str, Parser]] = {
    "execution.checkpointing.interval": ("interval_ms", parse_duration_ms),
    "execution.checkpointing.mode": ("mode", _member(CheckpointingMode)),
    "execution.checkpointing.timeout": ("timeout_ms", parse_duration_ms),
    "execution.checkpointing.min-pause": ("min_pause_ms", parse_duration_ms),
    "execution.checkpointing.tolerable-failed-checkpoints": ("tolerable_failures", _number(int)),
    "execution.checkpointing.num-retained": ("num_retained", _number(int)),
    "execution.checkpointing.externalized-checkpoint-retention": ("retention", _member(ExternalizedCheckpointRetention)),
}
_RESTART_KEYS: dict[str, tuple[str, Parser]] = {
    "restart-strategy.type": ("kind", _choice(_STRATEGIES)),
    "restart-strategy.fixed-delay.attempts": ("attempts", _number(int)),
    "restart-strategy.fixed-delay.delay": ("delay_ms", parse_duration_ms),
    "restart-strategy.exponential-delay.initial-backoff": ("delay_ms", parse_duration_ms),
    "restart-strategy.exponential-delay.max-backoff": ("max_delay_ms", parse_duration_ms),
    "restart-strategy.exponential-delay.backoff-multiplier": ("multiplier", _number(float)),
    "restart-strategy.exponential-delay.jitter-factor": ("jitter", _number(float)),
    "restart-strategy.exponential-delay.reset-backoff-threshold": ("reset_after_ms", parse_duration_ms),
    "restart-strategy.exponential-delay.attempts-before-reset-backoff": ("attempts", _number(int)),
    "restart-strategy.failure-rate.max-failures-per-interval": ("attempts", _number(int)),
    "restart-strategy.failure-rate.failure-rate-interval": ("interval_ms", parse_duration_ms),
    "restart-strategy.failure-rate.delay": ("delay_ms", parse_duration_ms),
}
_SCHEDULE_KEYS: dict[str, tuple[str, Parser]] = {  # keys of Flink's Kubernetes operator, without its prefix
    "periodic.savepoint.interval": ("interval_ms", parse_duration_ms),
    "savepoint.history.max.count": ("keep_last", _number(int)),
    "savepoint.history.max.age": ("keep_for_ms", parse_duration_ms),
}
_AUTOSCALE_KEYS: dict[str, tuple[str, Parser]] = {  # keys of Flink's autoscaler
    "job.autoscaler.vertex.min-parallelism": ("minimum", _number(int)),
    "job.autoscaler.vertex.max-parallelism": ("maximum", _number(int)),
}
_PARAMETERS = "pipeline.global-job-parameters"
_SPARK = "spark."
_TABLES = (_JOB_KEYS, _CHECKPOINT_KEYS, _RESTART_KEYS, _SCHEDULE_KEYS, _AUTOSCALE_KEYS)
KEYS = (*(key for table in _TABLES for key in table), _PARAMETERS)
DURATIONS = frozenset(
    {
        *(key for table in _TABLES for key, (_, parse) in table.items() if parse is parse_duration_ms),
        "execution.buffer-timeout",
        "execution.checkpointing.aligned-checkpoint-timeout",
        "metrics.latency.interval",
        "task.cancellation.interval",
        "task.cancellation.timeout",
    }
)

# Flink options without a counterpart here, accepted without effect so that Flink programs run.
IGNORED_PREFIXES = (
    *("python.", "pipeline.", "table.", "state.", "execution.buffer-timeout", "execution.checkpointing."),
    *("jobmanager.", "taskmanager.", "rest.", "web.", "metrics.", "akka.", "pekko.", "env.", "classloader."),
    *("cluster.", "kubernetes.", "yarn."),
)
TYPO = 0.9  # an ignored key this similar to an effective one is taken for a typo


def apply_configuration(options: JobOptions, configuration: Configuration | Mapping[str, Any]) -> JobOptions:
    """Apply a configuration to options.

    ConfigError for a key that neither forkpoint nor Flink has, and for an invalid value.
    """
    given = configuration.values if isinstance(configuration, Configuration) else configuration
    for key in given:
        if key not in KEYS and not key.startswith(_SPARK):
            ignored = key.startswith(IGNORED_PREFIXES)
            near = difflib.get_close_matches(key, KEYS, 1, TYPO if ignored else 0.6)
            if near or not ignored:
                hint = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(KEYS)}"
                raise ConfigError(f"there is no option {key!r}; {hint}")
    changes = _parsed(given, _JOB_KEYS)
    spark = {key: _as_text(value) for key, value in given.items() if key.startswith(_SPARK)}
    others = {key: value for key, value in given.items() if key not in KEYS and key not in spark}
    changes["spark"] = {**options.spark, **spark}
    changes["accepted"] = {**options.accepted, **others}
    changes["checkpoint"] = replace(options.checkpoint, **_parsed(given, _CHECKPOINT_KEYS))
    if any(key in given for key in _RESTART_KEYS):
        changes["restart"] = _restart_strategy(given, options)
    if any(key in given for key in _SCHEDULE_KEYS):
        changes["savepoint_schedule"] = _schedule(given, options.savepoint_schedule)
    if any(key in given for key in _AUTOSCALE_KEYS):
        changes["autoscale"] = _autoscale(given, options.autoscale)
    if _PARAMETERS in given:
        changes["parameters"] = {**options.parameters, **_parameters(given[_PARAMETERS])}
    return replace(options, **changes)


_DEFAULT_TEXTS = {
    "execution.engine": "spark",
    "spark.master": "local[*]",
    "restart-strategy.type": "exponential-delay with checkpointing, else none",
}


def default_of(key: str) -> Any:
    """The default of an option, as a user would write it; None if it has no default."""
    parse: Parser = _text
    value = _DEFAULT_TEXTS.get(key)
    if value is None and key in _JOB_KEYS:
        name, parse = _JOB_KEYS[key]
        value = getattr(JobOptions(), name)
    elif key in _CHECKPOINT_KEYS:
        name, parse = _CHECKPOINT_KEYS[key]
        value = getattr(CheckpointOptions(), name)
    elif value is None and key in _RESTART_KEYS:
        name, parse = _RESTART_KEYS[key]
        value = getattr(_strategies()[key.split(".")[1]], name)
    if isinstance(value, Enum):
        return value.name
    return f"{value} ms" if parse is parse_duration_ms and value is not None else value


def _strategies() -> dict[str, RestartStrategy]:
    return {
        "none": RestartStrategy.none(),
        "fixed-delay": RestartStrategy.fixed_delay(),
        "exponential-delay": RestartStrategy.exponential_delay(),
        "failure-rate": RestartStrategy.failure_rate(),
    }


def _parsed(given: Mapping[str, Any], keys: Mapping[str, tuple[str, Parser]]) -> dict[str, Any]:
    return {name: parse(key, given[key]) for key, (name, parse) in keys.items() if key in given}


def _schedule(given: Mapping[str, Any], current: SavepointSchedule | None) -> SavepointSchedule:
    parsed = _parsed(given, _SCHEDULE_KEYS)
    if current is None and "interval_ms" not in parsed:
        raise ConfigError(f"{', '.join(k for k in _SCHEDULE_KEYS if k in given)}: set periodic.savepoint.interval too")
    return SavepointSchedule(**parsed) if current is None else replace(current, **parsed)


def _autoscale(given: Mapping[str, Any], current: Autoscale | None) -> Autoscale:
    parsed = _parsed(given, _AUTOSCALE_KEYS)
    if current is None and "maximum" not in parsed:
        raise ConfigError("job.autoscaler.vertex.min-parallelism: set job.autoscaler.vertex.max-parallelism too")
    return Autoscale(**{"minimum": 1, **parsed}) if current is None else replace(current, **parsed)


def _restart_strategy(given: Mapping[str, Any], options: JobOptions) -> RestartStrategy:
    """A given type starts from its defaults; settings without a type change the current strategy."""
    type_key = "restart-strategy.type"
    base = _strategies()[_choice(_STRATEGIES)(type_key, given[type_key])] if type_key in given else options.restart_strategy
    keys = {k: v for k, v in _RESTART_KEYS.items() if k.startswith(f"restart-strategy.{base.kind}.")}
    return replace(base, **_parsed(given, keys))


def _parameters(value: Any) -> dict[str, str]:
    """A mapping, or Flink's text form ``key:value,key:value``."""
    if isinstance(value, Mapping):
        return {str(k): str(v) for k, v in value.items()}
    pairs = [part.partition(":") for part in str(value).split(",") if part.strip()]
    if not all(separator for _, separator, _ in pairs):
        raise ConfigError(f"{_PARAMETERS} = {value!r}: write it as 'key:value,key:value', or give a dict")
    return {key.strip(): text.strip() for key, _, text in pairs}
