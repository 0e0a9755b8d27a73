"""PyFlink's views of an environment's options: ``get_checkpoint_config()`` and ``get_config()``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from forkpoint.errors import ConfigError
from forkpoint.functions import Duration, to_ms
from forkpoint.graph.options import CheckpointingMode, CheckpointOptions, ExternalizedCheckpointRetention
from forkpoint.wording import parse_duration_ms

if TYPE_CHECKING:
    from forkpoint.api.environment import StreamExecutionEnvironment


class _OptionsView:
    """A view of an environment's options. Options without effect are stored by key and can be read back."""

    _prefix = ""

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self._env = env

    def _accept(self, key: str, value: object) -> Self:
        self._env._accept(self._prefix + key, value)
        return self

    def _accepted(self, key: str, default: Any) -> Any:
        return self._env._accepted(self._prefix + key, default)


class CheckpointConfig(_OptionsView):
    """The checkpoint options of an environment. Setters modify them and return this object.

    Times are set as timedelta or int ms and read as int ms. Values out of range raise ConfigError.
    """

    _prefix = "execution.checkpointing."

    @property
    def _config(self) -> CheckpointOptions:
        return self._env.options.checkpoint

    def _set(self, **changes: Any) -> CheckpointConfig:
        self._env._set(checkpoint=replace(self._config, **changes))
        return self

    def is_checkpointing_enabled(self) -> bool:
        """Whether a checkpoint interval is set."""
        return self._config.enabled

    def set_checkpoint_interval(self, checkpoint_interval: timedelta | int) -> CheckpointConfig:
        """Set the checkpoint interval, which is also the minimum duration of an epoch."""
        return self._set(interval_ms=to_ms(checkpoint_interval, "the checkpoint interval", minimum_ms=1))

    def get_checkpoint_interval(self) -> int:
        """The interval in ms, -1 if checkpointing is off."""
        return self._env.get_checkpoint_interval()

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Set EXACTLY_ONCE or AT_LEAST_ONCE; both give exactly-once results."""
        return self._set(mode=CheckpointingMode(checkpointing_mode))

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The mode."""
        return self._config.mode

    def set_checkpoint_timeout(self, checkpoint_timeout: timedelta | int) -> CheckpointConfig:
        """Set the timeout after which an epoch fails."""
        return self._set(timeout_ms=to_ms(checkpoint_timeout, "the checkpoint timeout", minimum_ms=1))

    def get_checkpoint_timeout(self) -> int:
        """The timeout in ms."""
        return self._config.timeout_ms

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: timedelta | int) -> CheckpointConfig:
        """Set the minimum pause between the commit of an epoch and the next epoch."""
        return self._set(min_pause_ms=to_ms(min_pause_between_checkpoints, "the pause between checkpoints"))

    def get_min_pause_between_checkpoints(self) -> int:
        """The pause in ms."""
        return self._config.min_pause_ms

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        """Accepted for PyFlink compatibility, without effect: the restart strategy handles failures."""
        return self._set(tolerable_failures=tolerable_checkpoint_failure_number)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """The number of tolerable failures."""
        return self._config.tolerable_failures

    def set_externalized_checkpoint_retention(self, retention_mode: ExternalizedCheckpointRetention) -> CheckpointConfig:
        """Accepted for PyFlink compatibility, without effect: checkpoints below a state root are kept."""
        return self._set(retention=ExternalizedCheckpointRetention(retention_mode))

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """The retention that was set."""
        return self._config.retention

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Whether a retention is set."""
        return self._config.retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    # The rest is accepted for PyFlink compatibility, without effect, and can be read back: epochs do not overlap, nothing
    # is in flight between them, and the restart strategy handles failures.

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Accepted without effect."""
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else 2**31 - 1)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Whether no failure is tolerable."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Accepted without effect. ConfigError below 1."""
        if max_concurrent_checkpoints < 1:
            raise ConfigError(f"the number of concurrent checkpoints is {max_concurrent_checkpoints}; it must be at least 1")
        return self._accept("max-concurrent-checkpoints", max_concurrent_checkpoints)

    def get_max_concurrent_checkpoints(self) -> int:
        """The value set, 1 by default."""
        return int(self._accepted("max-concurrent-checkpoints", 1))

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Accepted without effect."""
        return self._accept("unaligned.enabled", enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Accepted without effect."""
        return self.enable_unaligned_checkpoints(False)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """The value set, False by default."""
        return self._env.is_unaligned_checkpoints_enabled()

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Accepted without effect."""
        return self._accept("unaligned.forced", force_unaligned_checkpoints)

    def is_force_unaligned_checkpoints(self) -> bool:
        """The value set, False by default."""
        return self._env.is_force_unaligned_checkpoints()

    def set_aligned_checkpoint_timeout(self, alignment_timeout: timedelta | int) -> CheckpointConfig:
        """Accepted without effect."""
        return self._accept("aligned-checkpoint-timeout", to_ms(alignment_timeout, "the aligned checkpoint timeout"))

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """The value set, 0 by default."""
        key = "aligned-checkpoint-timeout"
        return Duration.of_millis(parse_duration_ms(self._prefix + key, self._accepted(key, 0)))

    set_alignment_timeout = set_aligned_checkpoint_timeout  # their former names
    get_alignment_timeout = get_aligned_checkpoint_timeout


class ExecutionConfig(_OptionsView):
    """The other options of an environment. Setters modify them and return this object."""

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the environment's parallelism."""
        self._env.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """The environment's parallelism, PARALLELISM_DEFAULT if the engine chooses it."""
        return self._env.get_parallelism() or self.PARALLELISM_DEFAULT

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the environment's max parallelism."""
        self._env.set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """The environment's max parallelism."""
        return self._env.get_max_parallelism()

    def set_auto_watermark_interval(self, interval: timedelta | int) -> ExecutionConfig:
        """0 withholds periodic watermarks until the input ends; any other interval (timedelta or int ms) emits them.

        Periodic watermarks are those of the built-in strategies and of ``WatermarkGenerator.on_periodic_emit``. They are
        emitted per epoch, whatever the interval.
        """
        self._env._set(auto_watermark_interval_ms=to_ms(interval, "the automatic watermark interval"))
        return self

    def get_auto_watermark_interval(self) -> int:
        """The interval in ms."""
        return self._env.options.auto_watermark_interval_ms

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, object]) -> ExecutionConfig:
        """Set the parameters that ``RuntimeContext.get_job_parameter`` reads; values are converted to str."""
        self._env._set(parameters={str(key): str(value) for key, value in global_job_parameters_dict.items()})
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        """The job parameters."""
        return dict(self._env.options.parameters)

    # The rest is accepted for PyFlink compatibility, without effect, and can be read back.

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Accepted without effect: functions are shipped by value."""
        return self._accept("pipeline.closure-cleaner-level", True)

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Accepted without effect: functions are shipped by value."""
        return self._accept("pipeline.closure-cleaner-level", False)

    def is_closure_cleaner_enabled(self) -> bool:
        """The value set, True by default."""
        return str(self._accepted("pipeline.closure-cleaner-level", True)).upper() not in ("NONE", "FALSE")

    def enable_force_kryo(self) -> ExecutionConfig:
        """Accepted without effect: nothing is serialized by Java."""
        return self._accept("pipeline.force-kryo", True)

    def disable_force_kryo(self) -> ExecutionConfig:
        """Accepted without effect: nothing is serialized by Java."""
        return self._accept("pipeline.force-kryo", False)

    def is_force_kryo_enabled(self) -> bool:
        """The value set, False by default."""
        return self._env._flag("pipeline.force-kryo", False)

    def enable_force_avro(self) -> ExecutionConfig:
        """Accepted without effect: nothing is serialized by Java."""
        return self._accept("pipeline.force-avro", True)

    def disable_force_avro(self) -> ExecutionConfig:
        """Accepted without effect: nothing is serialized by Java."""
        return self._accept("pipeline.force-avro", False)

    def is_force_avro_enabled(self) -> bool:
        """The value set, False by default."""
        return self._env._flag("pipeline.force-avro", False)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Accepted without effect: Python objects are passed on without copying."""
        return self._accept("pipeline.object-reuse", True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Accepted without effect: Python objects are passed on without copying."""
        return self._accept("pipeline.object-reuse", False)

    def is_object_reuse_enabled(self) -> bool:
        """The value set, False by default."""
        return self._env._flag("pipeline.object-reuse", False)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Accepted without effect: uids are required wherever state can outlive the run."""
        return self._accept("pipeline.auto-generate-uids", True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Accepted without effect: uids are required wherever state can outlive the run."""
        return self._accept("pipeline.auto-generate-uids", False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """The value set, True by default."""
        return self._env._flag("pipeline.auto-generate-uids", True)

    def enable_generic_types(self) -> ExecutionConfig:
        """Accepted without effect: nothing is serialized by Java."""
        return self._accept("pipeline.generic-types", True)

    def disable_generic_types(self) -> ExecutionConfig:
        """Accepted without effect: nothing is serialized by Java."""
        return self._accept("pipeline.generic-types", False)

    def has_generic_types_disabled(self) -> bool:
        """Whether generic types were disabled."""
        return not self._env._flag("pipeline.generic-types", True)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Accepted without effect: savepoints are always compressed."""
        return self._accept("execution.checkpointing.snapshot-compression", use_snapshot_compression)

    def is_use_snapshot_compression(self) -> bool:
        """The value set, False by default."""
        return self._env._flag("execution.checkpointing.snapshot-compression", False)

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Accepted without effect."""
        return self._accept("metrics.latency.interval", interval)

    def get_latency_tracking_interval(self) -> int:
        """The value set, 0 by default."""
        return parse_duration_ms("metrics.latency.interval", self._accepted("metrics.latency.interval", 0))

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        """Accepted without effect: the engine cancels its tasks."""
        return self._accept("task.cancellation.interval", interval)

    def get_task_cancellation_interval(self) -> int:
        """The value set, 30,000 ms by default."""
        return parse_duration_ms("task.cancellation.interval", self._accepted("task.cancellation.interval", 30_000))

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        """Accepted without effect: the engine cancels its tasks."""
        return self._accept("task.cancellation.timeout", timeout)

    def get_task_cancellation_timeout(self) -> int:
        """The value set, 180,000 ms by default."""
        return parse_duration_ms("task.cancellation.timeout", self._accepted("task.cancellation.timeout", 180_000))

    def __eq__(self, other: object) -> bool:
        return self._env.options == other._env.options if isinstance(other, ExecutionConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._env.options.parallelism, self._env.options.max_parallelism))
