"""PyFlink's views of an environment's options: ``get_checkpoint_config()`` and ``get_config()``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from forkpoint.api.configuration import checkpoint_config
from forkpoint.errors import ConfigError
from forkpoint.functions import to_ms
from forkpoint.graph.options import CheckpointConfig, CheckpointingMode, ExternalizedCheckpointRetention

if TYPE_CHECKING:
    from forkpoint.api.environment import StreamExecutionEnvironment


class CheckpointSettings:
    """An environment's checkpoint options, to read and change. ``set_*`` and ``enable_*`` return this object.

    Times are given as timedelta or int ms and read as int ms. A value out of range is a ConfigError.
    """

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self._env = env

    @property
    def _config(self) -> CheckpointConfig:
        return self._env.options.checkpoint

    def _set(self, **changes: object) -> CheckpointSettings:
        self._env.options = checkpoint_config(self._env.options, **changes)
        return self

    def is_checkpointing_enabled(self) -> bool:
        """Whether an interval was set."""
        return self._config.enabled

    def set_checkpoint_interval(self, interval: timedelta | int) -> CheckpointSettings:
        """How often a checkpoint is taken, which is how long an epoch lasts at least."""
        return self._set(interval_ms=to_ms(interval, "the checkpoint interval", minimum_ms=1))

    def get_checkpoint_interval(self) -> int:
        """The interval in ms, -1 where checkpointing is off."""
        return -1 if self._config.interval_ms is None else self._config.interval_ms

    def set_checkpointing_mode(self, mode: CheckpointingMode) -> CheckpointSettings:
        """EXACTLY_ONCE or AT_LEAST_ONCE; the latter gives exactly once all the same."""
        return self._set(mode=CheckpointingMode(mode))

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The mode."""
        return self._config.mode

    def set_checkpoint_timeout(self, timeout: timedelta | int) -> CheckpointSettings:
        """An epoch that takes longer fails."""
        return self._set(timeout_ms=to_ms(timeout, "the checkpoint timeout", minimum_ms=1))

    def get_checkpoint_timeout(self) -> int:
        """The timeout in ms."""
        return self._config.timeout_ms

    def set_min_pause_between_checkpoints(self, pause: timedelta | int) -> CheckpointSettings:
        """The least rest between one epoch's commit and the next epoch."""
        return self._set(min_pause_ms=to_ms(pause, "the pause between checkpoints"))

    def get_min_pause_between_checkpoints(self) -> int:
        """The pause in ms."""
        return self._config.min_pause_ms

    def set_tolerable_checkpoint_failure_number(self, number: int) -> CheckpointSettings:
        """Accepted for PyFlink programs without effect: the restart strategy decides about failures."""
        return self._set(tolerable_failures=number)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """The number of tolerable failures."""
        return self._config.tolerable_failures

    def set_externalized_checkpoint_retention(self, retention: ExternalizedCheckpointRetention) -> CheckpointSettings:
        """Accepted for PyFlink programs without effect: checkpoints below a state root are kept."""
        return self._set(retention=ExternalizedCheckpointRetention(retention))

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """What becomes of checkpoints when the job is cancelled."""
        return self._config.retention

    def set_max_concurrent_checkpoints(self, number: int) -> CheckpointSettings:
        """Accepted for PyFlink programs; above 0, else ConfigError. Epochs follow each other, so it is always 1."""
        if number < 1:
            raise ConfigError(f"the number of concurrent checkpoints is {number}; it must be at least 1")
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        """Always 1."""
        return 1

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointSettings:
        """Accepted for PyFlink programs without effect: at the end of an epoch nothing is in flight."""
        return self

    def disable_unaligned_checkpoints(self) -> CheckpointSettings:
        """Accepted for PyFlink programs without effect."""
        return self

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Always False."""
        return False

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointSettings:
        """Accepted for PyFlink programs without effect."""
        return self

    def set_aligned_checkpoint_timeout(self, aligned_checkpoint_timeout: timedelta | int) -> CheckpointSettings:
        """Accepted for PyFlink programs without effect."""
        to_ms(aligned_checkpoint_timeout, "the aligned checkpoint timeout")
        return self


class ExecutionConfig:
    """An environment's other options, to read and change. ``set_*`` return this object."""

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self._env = env

    def set_auto_watermark_interval(self, interval: timedelta | int) -> ExecutionConfig:
        """0 holds periodic watermarks back until the input ends: those of the built-in strategies, and what generators emit
        in ``on_periodic_emit``. Any other value (timedelta or int ms) lets them flow; it is no period, epochs are.
        """
        ms = to_ms(interval, "the automatic watermark interval")
        self._env.options = replace(self._env.options, auto_watermark_interval_ms=ms)
        return self

    def get_auto_watermark_interval(self) -> int:
        """The interval in ms."""
        return self._env.options.auto_watermark_interval_ms

    def set_global_job_parameters(self, parameters: Mapping[str, object]) -> ExecutionConfig:
        """What ``RuntimeContext.get_job_parameter`` finds; values as text."""
        texts = {str(key): str(value) for key, value in parameters.items()}
        self._env.options = replace(self._env.options, parameters=texts)
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        """The job parameters."""
        return dict(self._env.options.parameters)
