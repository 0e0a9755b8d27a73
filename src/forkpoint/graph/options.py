"""How a job runs: options as frozen values, with Flink's names and defaults where Flink has the option.

Every field that is a time is int milliseconds. The environment makes these; the driver reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Literal

from forkpoint.errors import ConfigError
from forkpoint.functions import to_ms

DEFAULT_MAX_PARALLELISM = 128
UPPER_BOUND_MAX_PARALLELISM = 32768


def check_max_parallelism(max_parallelism: int) -> int:
    """The value, or ConfigError where it is not between 1 and 32768."""
    _at_least("the maximum parallelism", max_parallelism, 1)
    if max_parallelism > UPPER_BOUND_MAX_PARALLELISM:
        raise ConfigError(
            f"the maximum parallelism is {max_parallelism}; it can be {UPPER_BOUND_MAX_PARALLELISM} at most"
        )
    return max_parallelism


def check_parallelism(parallelism: int) -> int:
    """The value, or ConfigError where it is not an int above 0."""
    _at_least("the parallelism", parallelism, 1)
    return parallelism


def _at_least(what: str, value: int, minimum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ConfigError(f"{what} is {value!r}; it must be an int of at least {minimum}")


class CheckpointingMode(Enum):
    """What a failure may do to results. AT_LEAST_ONCE is accepted and gives exactly once all the same."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1


class ExternalizedCheckpointRetention(Enum):
    """Accepted for PyFlink programs: checkpoints below a state root are always kept when a job ends."""

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2


class RuntimeExecutionMode(Enum):
    """How a job runs: BATCH, for bounded inputs, gives final results only; AUTOMATIC is that where all inputs are bounded."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2


@dataclass(frozen=True)
class CheckpointOptions:
    """When and how checkpoints are taken. ``interval_ms`` None: checkpointing is off, a failure ends the job.

    ``timeout_ms``: an epoch that takes longer fails. ``min_pause_ms``: rest between one epoch's commit and the next
    epoch. ``num_retained``: how many checkpoints are kept. ``tolerable_failures`` and ``retention`` are accepted for
    PyFlink programs without effect: the restart strategy decides about failures, and checkpoints below a state root are kept.
    """

    interval_ms: int | None = None
    mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    tolerable_failures: int = 0
    num_retained: int = 1
    retention: ExternalizedCheckpointRetention = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    def __post_init__(self) -> None:
        if self.interval_ms is not None:
            _at_least("the checkpoint interval in ms", self.interval_ms, 1)
        _at_least("the checkpoint timeout in ms", self.timeout_ms, 1)
        _at_least("the pause between checkpoints in ms", self.min_pause_ms, 0)
        _at_least("the number of tolerable checkpoint failures", self.tolerable_failures, 0)
        _at_least("the number of retained checkpoints", self.num_retained, 1)

    @property
    def enabled(self) -> bool:
        """Whether checkpointing is on."""
        return self.interval_ms is not None


@dataclass(frozen=True)
class RestartStrategy:
    """Whether and when a failed job starts again from its last checkpoint. Made by the methods named after ``kind``.

    ``attempts``: restarts in a row before the job fails, None for no limit. ``delay_ms``: before each restart, the
    first one for exponential delay. Exponential delay: times ``multiplier`` up to ``max_delay_ms``, varied by
    ± ``jitter`` (a share), beginning anew after ``reset_after_ms`` without failure. Failure rate: the job fails at more
    than ``attempts`` failures within ``interval_ms``.
    """

    kind: Literal["none", "fixed-delay", "exponential-delay", "failure-rate"]
    attempts: int | None = None
    delay_ms: int = 1_000
    max_delay_ms: int = 60_000
    multiplier: float = 1.5
    jitter: float = 0.1
    reset_after_ms: int = 3_600_000
    interval_ms: int = 60_000

    def __post_init__(self) -> None:
        if self.kind not in ("none", "fixed-delay", "exponential-delay", "failure-rate"):
            raise ConfigError(
                f"restart strategy {self.kind!r} is none of none, fixed-delay, exponential-delay, failure-rate"
            )
        if self.attempts is not None:
            _at_least("the number of restart attempts", self.attempts, 0)
        _at_least("the restart delay in ms", self.delay_ms, 0)
        _at_least("the greatest restart delay in ms", self.max_delay_ms, self.delay_ms if self._exponential else 0)
        _at_least("the interval of the failure rate in ms", self.interval_ms, 1)
        _at_least("the time in ms after which the restart delay begins anew", self.reset_after_ms, 1)
        if self.multiplier < 1:
            raise ConfigError(f"the multiplier of the restart delay is {self.multiplier}; it must be at least 1")
        if not 0 <= self.jitter < 1:
            raise ConfigError(f"the jitter of the restart delay is {self.jitter}; it must be at least 0 and below 1")

    @property
    def _exponential(self) -> bool:
        return self.kind == "exponential-delay"

    @staticmethod
    def none() -> RestartStrategy:
        """A failure ends the job."""
        return RestartStrategy("none", attempts=0)

    @staticmethod
    def fixed_delay(attempts: int = 1, delay: timedelta | int = timedelta(seconds=1)) -> RestartStrategy:
        """Up to ``attempts`` restarts, each after ``delay`` (timedelta, or int ms)."""
        return RestartStrategy("fixed-delay", attempts, to_ms(delay, "the restart delay"))

    @staticmethod
    def exponential_delay(
        initial: timedelta | int = timedelta(seconds=1),
        maximum: timedelta | int = timedelta(minutes=1),
        multiplier: float = 1.5,
        jitter: float = 0.1,
        reset_after: timedelta | int = timedelta(hours=1),
        attempts: int | None = None,
    ) -> RestartStrategy:
        """Restarts with a growing delay; Flink's default where checkpointing is on. Times: timedelta, or int ms."""
        return RestartStrategy(
            "exponential-delay", attempts, to_ms(initial, "the first restart delay"),
            to_ms(maximum, "the greatest restart delay"), multiplier, jitter, to_ms(reset_after, "reset_after"),
        )  # fmt: skip

    @staticmethod
    def failure_rate(
        max_failures: int = 1,
        interval: timedelta | int = timedelta(minutes=1),
        delay: timedelta | int = timedelta(seconds=1),
    ) -> RestartStrategy:
        """Restarts after ``delay`` unless there were more than ``max_failures`` failures within ``interval``."""
        return RestartStrategy(
            "failure-rate", max_failures, to_ms(delay, "the restart delay"),
            interval_ms=to_ms(interval, "the interval of the failure rate"),
        )  # fmt: skip


@dataclass(frozen=True)
class SavepointSchedule:
    """Savepoints that a running job takes by itself, one every ``interval_ms``, in ``directory`` (None: where savepoints go).

    Of these, the newest ``keep_last`` stay, and those younger than ``keep_for_ms``: who fulfils either rule stays, without a
    rule all do. One that people gave a label or note, or that others depend on, stays too.
    """

    interval_ms: int
    directory: str | None = None
    keep_last: int | None = None
    keep_for_ms: int | None = None

    def __post_init__(self) -> None:
        _at_least("the interval of the savepoint schedule in ms", self.interval_ms, 1)
        if self.keep_last is not None:
            _at_least("the number of scheduled savepoints to keep", self.keep_last, 1)
        if self.keep_for_ms is not None:
            _at_least("the time in ms for which scheduled savepoints are kept", self.keep_for_ms, 1)


@dataclass(frozen=True)
class RestoreOptions:
    """What a run starts from, and what may become of saved state.

    ``savepoint``: a path, URL, id or label, ``"latest"``, ``"none"`` to begin anew, or None: go on from the newest
    checkpoint. ``allow_non_restored``: saved state that the program has no place for is dropped, not refused. ``renames``:
    uids as they were saved, and what they are called now. ``claim``: the savepoint is deleted once the run has its state.
    ``allow_drained``: go on from the newest checkpoint also where the job was stopped with a drain.
    """

    savepoint: str | None = None
    allow_non_restored: bool = False
    renames: Mapping[str, str] = field(default_factory=dict)
    claim: bool = False
    allow_drained: bool = False


@dataclass(frozen=True)
class JobOptions:
    """Everything about a run that is not the program itself.

    ``parallelism``: subtasks of a stage, None for what the engine thinks right. ``state_root``: URL or path below which
    the job's state is kept beyond the run; None for a place that is removed with the process. ``savepoint_directory``:
    where savepoints go unless a path is given with the command, None for below the state root. ``savepoint_schedule``: those
    that are taken without being asked for, None for none. ``restart``: None for
    the default, see ``restart_strategy``. ``engine``: None for Spark, unless the surroundings say otherwise.
    ``state_backend``: the subtasks' local store. ``auto_watermark_interval_ms``: 0 holds watermarks back to the end
    of the input, but for what generators emit at elements; any other value is the same as any other, since watermarks
    don't wait for a clock.
    ``max_epoch_rows``: how many elements an epoch takes from each source at most, None for the source's own limit.
    ``accepted``: Flink's options that have no effect here, by key, as they were given; a program may read them back.
    """

    parallelism: int | None = None
    max_parallelism: int = DEFAULT_MAX_PARALLELISM
    checkpoint: CheckpointOptions = CheckpointOptions()
    restart: RestartStrategy | None = None
    state_root: str | None = None
    savepoint_directory: str | None = None
    savepoint_schedule: SavepointSchedule | None = None
    engine: Literal["spark", "local"] | None = None
    state_backend: Literal["lmdb", "rocksdb", "dict"] = "lmdb"
    auto_watermark_interval_ms: int = 200
    max_epoch_rows: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    accepted: Mapping[str, object] = field(default_factory=dict)
    runtime_mode: RuntimeExecutionMode = RuntimeExecutionMode.STREAMING

    def __post_init__(self) -> None:
        if self.parallelism is not None:
            _at_least("the parallelism", self.parallelism, 1)
        check_max_parallelism(self.max_parallelism)
        if self.parallelism is not None and self.parallelism > self.max_parallelism:
            raise ConfigError(
                f"the parallelism {self.parallelism} exceeds the maximum parallelism {self.max_parallelism}; "
                "lower the one, or raise the other with set_max_parallelism()"
            )
        if self.engine not in (None, "spark", "local"):
            raise ConfigError(f"the engine is {self.engine!r}; it must be 'spark' or 'local'")
        if self.state_backend not in ("lmdb", "rocksdb", "dict"):
            raise ConfigError(f"the state backend is {self.state_backend!r}; it must be 'lmdb', 'rocksdb' or 'dict'")
        if isinstance(self.savepoint_schedule, Mapping):  # as it was noted with a run
            object.__setattr__(self, "savepoint_schedule", SavepointSchedule(**self.savepoint_schedule))
        if self.max_epoch_rows is not None:
            _at_least("the greatest number of rows an epoch takes from a source", self.max_epoch_rows, 1)
        _at_least("the automatic watermark interval in ms", self.auto_watermark_interval_ms, 0)

    @property
    def restart_strategy(self) -> RestartStrategy:
        """The one that was set; else none with checkpointing off and exponential delay with it on, as in Flink."""
        if self.restart is not None:
            return self.restart
        return RestartStrategy.exponential_delay() if self.checkpoint.enabled else RestartStrategy.none()
