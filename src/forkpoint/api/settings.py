"""PyFlink's views of an environment's options: ``get_checkpoint_config()`` and ``get_config()``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from forkpoint.api.configuration import accept, checkpoint_config, parse_boolean, parse_duration_ms
from forkpoint.errors import ConfigError
from forkpoint.functions import Duration, to_ms
from forkpoint.graph.options import CheckpointingMode, CheckpointOptions, ExternalizedCheckpointRetention

if TYPE_CHECKING:
    from forkpoint.api.environment import StreamExecutionEnvironment


_CHECKPOINTING = "execution.checkpointing."


class CheckpointConfig:
    """An environment's checkpoint options, to read and change. ``set_*`` and ``enable_*`` return this object.

    Times are given as timedelta or int ms and read as int ms. A value out of range is a ConfigError.
    """

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self._env = env

    @property
    def _config(self) -> CheckpointOptions:
        return self._env.options.checkpoint

    def _set(self, **changes: object) -> CheckpointConfig:
        self._env.options = checkpoint_config(self._env.options, **changes)
        return self

    def is_checkpointing_enabled(self) -> bool:
        """Whether an interval was set."""
        return self._config.enabled

    def set_checkpoint_interval(self, checkpoint_interval: timedelta | int) -> CheckpointConfig:
        """How often a checkpoint is taken, which is how long an epoch lasts at least."""
        return self._set(interval_ms=to_ms(checkpoint_interval, "the checkpoint interval", minimum_ms=1))

    def get_checkpoint_interval(self) -> int:
        """The interval in ms, -1 where checkpointing is off."""
        return -1 if self._config.interval_ms is None else self._config.interval_ms

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """EXACTLY_ONCE or AT_LEAST_ONCE; the latter gives exactly once all the same."""
        return self._set(mode=CheckpointingMode(checkpointing_mode))

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The mode."""
        return self._config.mode

    def set_checkpoint_timeout(self, checkpoint_timeout: timedelta | int) -> CheckpointConfig:
        """An epoch that takes longer fails."""
        return self._set(timeout_ms=to_ms(checkpoint_timeout, "the checkpoint timeout", minimum_ms=1))

    def get_checkpoint_timeout(self) -> int:
        """The timeout in ms."""
        return self._config.timeout_ms

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: timedelta | int) -> CheckpointConfig:
        """The least rest between one epoch's commit and the next epoch."""
        return self._set(min_pause_ms=to_ms(min_pause_between_checkpoints, "the pause between checkpoints"))

    def get_min_pause_between_checkpoints(self) -> int:
        """The pause in ms."""
        return self._config.min_pause_ms

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        """Accepted for PyFlink programs without effect: the restart strategy decides about failures."""
        return self._set(tolerable_failures=tolerable_checkpoint_failure_number)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """The number of tolerable failures."""
        return self._config.tolerable_failures

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Accepted for PyFlink programs without effect: checkpoints below a state root are kept."""
        return self._set(retention=ExternalizedCheckpointRetention(retention_mode))

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """What becomes of checkpoints when the job is cancelled."""
        return self._config.retention

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Whether a retention was set."""
        return self._config.retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    # What follows is accepted for PyFlink programs without effect, and can be read back: epochs follow each other, at the
    # end of one nothing is in flight, and the restart strategy decides about failures.

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Accepted without effect."""
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else 2**31 - 1)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Whether no failure is tolerable."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Accepted without effect; above 0, else ConfigError."""
        if max_concurrent_checkpoints < 1:
            raise ConfigError(
                f"the number of concurrent checkpoints is {max_concurrent_checkpoints}; it must be at least 1"
            )
        return self._accept("max-concurrent-checkpoints", max_concurrent_checkpoints)

    def get_max_concurrent_checkpoints(self) -> int:
        """What was set, 1 by default."""
        return int(self._accepted("max-concurrent-checkpoints", 1))

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Accepted without effect."""
        return self._accept("unaligned.enabled", enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Accepted without effect."""
        return self.enable_unaligned_checkpoints(False)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """What was set, False by default."""
        return parse_boolean(_CHECKPOINTING + "unaligned.enabled", self._accepted("unaligned.enabled", False))

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Accepted without effect."""
        return self._accept("unaligned.forced", force_unaligned_checkpoints)

    def is_force_unaligned_checkpoints(self) -> bool:
        """What was set, False by default."""
        return parse_boolean(_CHECKPOINTING + "unaligned.forced", self._accepted("unaligned.forced", False))

    def set_aligned_checkpoint_timeout(self, alignment_timeout: timedelta | int) -> CheckpointConfig:
        """Accepted without effect."""
        return self._accept("aligned-checkpoint-timeout", to_ms(alignment_timeout, "the aligned checkpoint timeout"))

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """What was set, 0 by default."""
        key = "aligned-checkpoint-timeout"
        return Duration.of_millis(parse_duration_ms(_CHECKPOINTING + key, self._accepted(key, 0)))

    def set_alignment_timeout(self, alignment_timeout: timedelta | int) -> CheckpointConfig:
        """``set_aligned_checkpoint_timeout`` under its former name."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def get_alignment_timeout(self) -> Duration:
        """``get_aligned_checkpoint_timeout`` under its former name."""
        return self.get_aligned_checkpoint_timeout()

    def _accept(self, key: str, value: object) -> CheckpointConfig:
        self._env.options = accept(self._env.options, _CHECKPOINTING + key, value)
        return self

    def _accepted(self, key: str, default: Any) -> Any:
        return self._env.options.accepted.get(_CHECKPOINTING + key, default)


class ExecutionConfig:
    """An environment's other options, to read and change. ``set_*`` return this object."""

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self._env = env

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """The environment's ``set_parallelism``."""
        self._env.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """The environment's parallelism, PARALLELISM_DEFAULT where the engine chooses."""
        return self._env.get_parallelism() or self.PARALLELISM_DEFAULT

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """The environment's ``set_max_parallelism``."""
        self._env.set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """The environment's max parallelism."""
        return self._env.get_max_parallelism()

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

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, object]) -> ExecutionConfig:
        """What ``RuntimeContext.get_job_parameter`` finds; values as text."""
        texts = {str(key): str(value) for key, value in global_job_parameters_dict.items()}
        self._env.options = replace(self._env.options, parameters=texts)
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        """The job parameters."""
        return dict(self._env.options.parameters)

    # What follows is accepted for PyFlink programs without effect, and can be read back.

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Accepted without effect: functions are shipped by value."""
        return self._accept("pipeline.closure-cleaner-level", True)

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Accepted without effect: functions are shipped by value."""
        return self._accept("pipeline.closure-cleaner-level", False)

    def is_closure_cleaner_enabled(self) -> bool:
        """What was set, True by default."""
        return bool(self._accepted("pipeline.closure-cleaner-level", True))

    def enable_force_kryo(self) -> ExecutionConfig:
        """Accepted without effect: nothing is serialized by Java."""
        return self._accept("pipeline.force-kryo", True)

    def disable_force_kryo(self) -> ExecutionConfig:
        """Accepted without effect: nothing is serialized by Java."""
        return self._accept("pipeline.force-kryo", False)

    def is_force_kryo_enabled(self) -> bool:
        """What was set, False by default."""
        return bool(self._accepted("pipeline.force-kryo", False))

    def enable_force_avro(self) -> ExecutionConfig:
        """Accepted without effect: nothing is serialized by Java."""
        return self._accept("pipeline.force-avro", True)

    def disable_force_avro(self) -> ExecutionConfig:
        """Accepted without effect: nothing is serialized by Java."""
        return self._accept("pipeline.force-avro", False)

    def is_force_avro_enabled(self) -> bool:
        """What was set, False by default."""
        return bool(self._accepted("pipeline.force-avro", False))

    def enable_object_reuse(self) -> ExecutionConfig:
        """Accepted without effect: Python objects are handed on as they are."""
        return self._accept("pipeline.object-reuse", True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Accepted without effect: Python objects are handed on as they are."""
        return self._accept("pipeline.object-reuse", False)

    def is_object_reuse_enabled(self) -> bool:
        """What was set, False by default."""
        return bool(self._accepted("pipeline.object-reuse", False))

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Accepted without effect: uids are required wherever state can outlive the run."""
        return self._accept("pipeline.auto-generate-uids", True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Accepted without effect: uids are required wherever state can outlive the run."""
        return self._accept("pipeline.auto-generate-uids", False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """What was set, True by default."""
        return bool(self._accepted("pipeline.auto-generate-uids", True))

    def enable_generic_types(self) -> ExecutionConfig:
        """Accepted without effect: nothing is serialized by Java."""
        return self._accept("pipeline.generic-types", True)

    def disable_generic_types(self) -> ExecutionConfig:
        """Accepted without effect: nothing is serialized by Java."""
        return self._accept("pipeline.generic-types", False)

    def has_generic_types_disabled(self) -> bool:
        """Whether they were disabled."""
        return not self._accepted("pipeline.generic-types", True)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Accepted without effect: savepoints are always compressed."""
        return self._accept("execution.checkpointing.snapshot-compression", use_snapshot_compression)

    def is_use_snapshot_compression(self) -> bool:
        """What was set, False by default."""
        return bool(self._accepted("execution.checkpointing.snapshot-compression", False))

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Accepted without effect."""
        return self._accept("metrics.latency.interval", interval)

    def get_latency_tracking_interval(self) -> int:
        """What was set, 0 by default."""
        return int(self._accepted("metrics.latency.interval", 0))

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        """Accepted without effect: the engine ends its tasks."""
        return self._accept("task.cancellation.interval", interval)

    def get_task_cancellation_interval(self) -> int:
        """What was set, 30,000 ms by default."""
        return int(self._accepted("task.cancellation.interval", 30_000))

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        """Accepted without effect: the engine ends its tasks."""
        return self._accept("task.cancellation.timeout", timeout)

    def get_task_cancellation_timeout(self) -> int:
        """What was set, 180,000 ms by default."""
        return int(self._accepted("task.cancellation.timeout", 180_000))

    def __eq__(self, other: object) -> bool:
        return self._env.options == other._env.options if isinstance(other, ExecutionConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._env.options.parallelism, self._env.options.max_parallelism))

    def _accept(self, key: str, value: object) -> ExecutionConfig:
        self._env.options = accept(self._env.options, key, value)
        return self

    def _accepted(self, key: str, default: Any) -> Any:
        return self._env.options.accepted.get(key, default)
