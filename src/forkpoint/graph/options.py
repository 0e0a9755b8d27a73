"""The frozen options of a job, with Flink's names and defaults where Flink has the option. Times are int milliseconds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from forkpoint.errors import Choice, ConfigError
from forkpoint.functions import to_ms

DEFAULT_MAX_PARALLELISM = 128
LEAST_MEMORY_BYTES = 64 << 20
UPPER_BOUND_MAX_PARALLELISM = 32768
ARCHIVES = "spark.archives"  # "path#directory,…", unpacked in the tasks' working directories
_VARIABLES = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")


def check_max_parallelism(max_parallelism: int) -> None:
    """Raise ConfigError unless it is an int from 1 to 32768."""
    _at_least("the maximum parallelism", max_parallelism, 1)
    if max_parallelism > UPPER_BOUND_MAX_PARALLELISM:
        raise ConfigError(f"the maximum parallelism is {max_parallelism}; it must be at most {UPPER_BOUND_MAX_PARALLELISM}")


def check_parallelism(parallelism: int) -> int:
    """Return the value; ConfigError unless it is an int above 0."""
    _at_least("the parallelism", parallelism, 1)
    return parallelism


def _at_least(what: str, value: int, minimum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ConfigError(f"{what} is {value!r}; it must be an int of at least {minimum}")


class CheckpointingMode(Choice):
    """The delivery guarantee. AT_LEAST_ONCE is accepted, but results are exactly-once in either mode."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1


class ExternalizedCheckpointRetention(Choice):
    """Accepted for PyFlink compatibility: checkpoints under a state root are always kept when a job ends."""

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2


class RuntimeExecutionMode(Choice):
    """BATCH gives final results of bounded inputs only; AUTOMATIC is BATCH if all inputs are bounded, else STREAMING."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2


@dataclass(frozen=True)
class CheckpointOptions:
    """When and how the job takes checkpoints. ``interval_ms`` None: checkpointing is off.

    ``timeout_ms``: the maximum duration of an epoch. ``min_pause_ms``: the minimum pause between an epoch's commit and the next
    epoch. ``num_retained``: the number of checkpoints to keep. ``tolerable_failures`` and ``retention`` are accepted for
    PyFlink compatibility, without effect.
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
    """Whether and when a failed job restarts from its last checkpoint. Created by the static methods.

    ``attempts``: consecutive restarts before the job fails, None for no limit. ``delay_ms``: the delay before a restart.
    Exponential delay starts there, grows by ``multiplier`` up to ``max_delay_ms``, varies by ± ``jitter`` (a fraction),
    and resets after ``reset_after_ms`` without failure. Failure rate: the job fails at more than ``attempts`` failures
    within ``interval_ms``.
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
            raise ConfigError(f"restart strategy {self.kind!r}: expected none, fixed-delay, exponential-delay or failure-rate")
        if self.attempts is not None:
            _at_least("the number of restart attempts", self.attempts, 0)
        _at_least("the restart delay in ms", self.delay_ms, 0)
        minimum_ms = self.delay_ms if self.kind == "exponential-delay" else 0
        _at_least("the maximum restart delay in ms", self.max_delay_ms, minimum_ms)
        _at_least("the interval of the failure rate in ms", self.interval_ms, 1)
        _at_least("the time in ms after which the restart delay resets", self.reset_after_ms, 1)
        if self.multiplier < 1:
            raise ConfigError(f"the multiplier of the restart delay is {self.multiplier}; it must be at least 1")
        if not 0 <= self.jitter < 1:
            raise ConfigError(f"the jitter of the restart delay is {self.jitter}; it must be at least 0 and below 1")

    @staticmethod
    def none() -> RestartStrategy:
        """Never restart."""
        return RestartStrategy("none", attempts=0)

    @staticmethod
    def fixed_delay(attempts: int = 1, delay: timedelta | int = timedelta(seconds=1)) -> RestartStrategy:
        """Allow ``attempts`` restarts, each after ``delay`` (timedelta or int ms)."""
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
        """Restart with a growing delay, the default with checkpointing, as in Flink. Times are timedelta or int ms."""
        return RestartStrategy(
            "exponential-delay",
            attempts,
            to_ms(initial, "the first restart delay"),
            to_ms(maximum, "the maximum restart delay"),
            multiplier,
            jitter,
            to_ms(reset_after, "reset_after"),
        )

    @staticmethod
    def failure_rate(
        max_failures: int = 1, interval: timedelta | int = timedelta(minutes=1), delay: timedelta | int = timedelta(seconds=1)
    ) -> RestartStrategy:
        """Restart after ``delay`` unless there were more than ``max_failures`` failures within ``interval``."""
        return RestartStrategy(
            "failure-rate",
            max_failures,
            to_ms(delay, "the restart delay"),
            interval_ms=to_ms(interval, "the interval of the failure rate"),
        )


@dataclass(frozen=True)
class SavepointSchedule:
    """Scheduled savepoints, taken every ``interval_ms`` into ``directory`` (None: the default savepoint directory).

    Retention keeps a savepoint that is among the newest ``keep_last`` or younger than ``keep_for_ms``, has a label or note, or
    has dependents. Without ``keep_last`` and ``keep_for_ms`` it keeps all.
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
class Autoscale:
    """The inclusive bounds within which a running job chooses its parallelism."""

    minimum: int
    maximum: int

    def __post_init__(self) -> None:
        _at_least("the minimum of autoscaling", self.minimum, 1)
        _at_least("the maximum of autoscaling", self.maximum, self.minimum)

    def clamp(self, parallelism: int) -> int:
        return min(max(parallelism, self.minimum), self.maximum)


@dataclass(frozen=True)
class RestoreOptions:
    """The state that a run restores, and how strictly.

    ``savepoint``: a path, URL, id or label, ``"latest"``, ``"none"`` to start without state, or None to resume from the
    newest checkpoint. ``allow_non_restored``: drop saved state, and fields of saved values, that the program no longer
    has, instead of refusing the restore. ``renames``: saved uid → current uid. ``claim``: delete the savepoint after the
    restore. ``allow_drained``: resume from the newest checkpoint even if the job was stopped with a drain. ``accept_empty``: the
    uids of operators that start empty if their saved state does not fit.
    """

    savepoint: str | None = None
    allow_non_restored: bool = False
    renames: Mapping[str, str] = field(default_factory=dict)
    claim: bool = False
    allow_drained: bool = False
    accept_empty: tuple[str, ...] = ()


@dataclass(frozen=True)
class Predecessor:
    """The run that a start succeeds: the job's newest run at the time of the request, or the dead leader that a standby
    replaces. ``run``: None if the job had no run. ``forced``: start even if another run has led the job since."""

    run: str | None
    forced: bool = False


@dataclass(frozen=True)
class JobOptions:
    """The options of a job.

    ``parallelism``: subtasks per stage, None for the engine's choice. ``autoscale``: the bounds within which the running job
    changes its parallelism, None to keep it. ``state_root``: the URL or path for state that outlives the run, None for a
    temporary directory. ``savepoint_directory``: for savepoints without an explicit path, None for a directory under the state
    root. ``savepoint_schedule``: None for no scheduled savepoints. ``restart``: None for the default; see ``restart_strategy``.
    ``engine``: None for FORKPOINT_ENGINE, else Spark. ``state_backend``: the subtasks' local store.
    ``auto_watermark_interval_ms``: 0 withholds periodic watermarks until the input ends; all other values are equivalent.
    ``max_epoch_rows``: the maximum an epoch reads from each source, None for the source's own limit. ``memory_bytes``: how much
    memory a subtask may take, None for no limit. ``silence_ms``: how long an
    unbounded source, or a split that holds the watermark back, may stay silent before the job's status reports a problem.
    ``spark``: settings of the SparkSession that the job starts, by name; an active session keeps its settings.
    ``over_columns``: compute functions that are expressions over columns.
    ``allow_pickle``: pickle values of untyped state and streams that have no typed form, and load such pickles. ``ship_env``:
    send this process's virtual environment to the executors. ``pass_env``: the environment variables to pass to the executors,
    by name or prefix (``AWS_*``); values are not recorded. ``accepted``: Flink options without effect, by key, which a program
    may read back.
    """

    parallelism: int | None = None
    max_parallelism: int = DEFAULT_MAX_PARALLELISM
    autoscale: Autoscale | None = None
    checkpoint: CheckpointOptions = CheckpointOptions()
    restart: RestartStrategy | None = None
    state_root: str | None = None
    savepoint_directory: str | None = None
    savepoint_schedule: SavepointSchedule | None = None
    engine: Literal["spark", "local"] | None = None
    state_backend: Literal["lmdb", "rocksdb", "dict"] = "lmdb"
    auto_watermark_interval_ms: int = 200
    max_epoch_rows: int | None = None
    memory_bytes: int | None = None
    silence_ms: int = 300_000
    over_columns: bool = True
    allow_pickle: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    ship_env: bool = False
    pass_env: Sequence[str] = ()
    accepted: Mapping[str, object] = field(default_factory=dict)
    runtime_mode: RuntimeExecutionMode = RuntimeExecutionMode.STREAMING

    def __post_init__(self) -> None:
        if self.parallelism is not None:
            _at_least("the parallelism", self.parallelism, 1)
        check_max_parallelism(self.max_parallelism)
        if self.parallelism is not None and self.parallelism > self.max_parallelism:
            raise ConfigError(
                f"the parallelism {self.parallelism} exceeds the maximum parallelism {self.max_parallelism}; "
                "lower it, or raise the maximum with set_max_parallelism()"
            )
        if isinstance(self.autoscale, Mapping):  # as recorded with a run
            object.__setattr__(self, "autoscale", Autoscale(**self.autoscale))
        if self.autoscale is not None and self.autoscale.maximum > self.max_parallelism:
            raise ConfigError(
                f"the maximum of autoscaling, {self.autoscale.maximum}, exceeds the maximum parallelism {self.max_parallelism}; "
                "lower it, or raise the maximum parallelism with set_max_parallelism()"
            )
        if self.engine not in (None, "spark", "local"):
            raise ConfigError(f"the engine is {self.engine!r}; it must be 'spark' or 'local'")
        if self.state_backend not in ("lmdb", "rocksdb", "dict"):
            raise ConfigError(f"the state backend is {self.state_backend!r}; it must be 'lmdb', 'rocksdb' or 'dict'")
        if isinstance(self.savepoint_schedule, Mapping):  # as recorded with a run
            object.__setattr__(self, "savepoint_schedule", SavepointSchedule(**self.savepoint_schedule))
        for name in self.pass_env:
            if not _VARIABLES.fullmatch(name):
                raise ConfigError(
                    f"{name!r} does not name environment variables to pass to executors; write a name, or a prefix and *, "
                    "as in AWS_*"
                )
        if self.max_epoch_rows is not None:
            _at_least("the maximum number of rows an epoch reads from a source", self.max_epoch_rows, 1)
        if self.memory_bytes is not None and self.memory_bytes < LEAST_MEMORY_BYTES:
            raise ConfigError(f"the memory of a subtask is {self.memory_bytes:,} bytes; it must be at least 64m")
        _at_least("the silence in ms after which something is wrong", self.silence_ms, 1)
        _at_least("the automatic watermark interval in ms", self.auto_watermark_interval_ms, 0)

    @property
    def restart_strategy(self) -> RestartStrategy:
        """The configured strategy; by default exponential delay with checkpointing and none without, as in Flink."""
        if self.restart is not None:
            return self.restart
        return RestartStrategy.exponential_delay() if self.checkpoint.enabled else RestartStrategy.none()
