"""A request to run a program, as a value and as a command line of `forkpoint run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from forkpoint.errors import ConfigError
from forkpoint.graph.options import Autoscale, RestoreOptions, SavepointSchedule
from forkpoint.logs import LogFormat

NO_RUN = "none"  # in place of a run's id


@dataclass(frozen=True)
class RunRequest:
    """A program to run, and its options.

    ``app``: a file, or ``run:RUN`` for the recorded program, arguments and options of that run. ``name``: overrides the program's
    job name. ``restore``: overrides the program's own. ``until``: read at full speed and stop with a savepoint there: a time
    (ISO 8601, UTC by default, or ms), or a savepoint, for its sources' positions. ``engine``: "spark" or "local".
    ``savepoint_schedule``: overrides the program's. ``pyflink``: the program imports pyflink. ``trial_epochs``: withhold the
    output until this many epochs are committed, and fail without a restart before. ``capture``: a directory for the elements of
    all sinks, which replaces the sinks. ``spark``: settings of the SparkSession, by name ("spark.master"). ``ship_env``: send the
    virtual environment to the executors. ``pass_env``: the environment variables that they get from the driver, by name or prefix
    (``AWS_*``). ``standby``: wait until the job's leader dies, and take over. ``autoscale``: the bounds for the parallelism of
    the running job. ``succeeds``: the run that hands the job over to this one. ``resumed``: the same request started the job
    before; if it was rescaled since, it keeps that parallelism instead of ``parallelism``. ``predecessor``: a job, and the run
    that its start succeeds (None: no run), which must still be the newest; by default the newest run at the time of the request.
    ``force``: start even if another run has led the job since. ``log_format``: of the log of a process that is started for it,
    "text" or "json"; by default that of this process. ``memory_bytes``: how much memory a subtask may take.
    """

    app: str
    arguments: tuple[str, ...] = ()
    name: str | None = None
    restore: RestoreOptions = field(default_factory=RestoreOptions)
    until: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    engine: str | None = None
    savepoint_schedule: SavepointSchedule | None = None
    pyflink: bool = False
    trial_epochs: int | None = None
    capture: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    ship_env: bool = False
    pass_env: Sequence[str] = ()
    standby: bool = False
    autoscale: Autoscale | None = None
    succeeds: str | None = None
    resumed: bool = False
    predecessor: tuple[str, str | None] | None = None
    force: bool = False
    log_format: LogFormat | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.savepoint_schedule is not None and self.savepoint_schedule.directory is not None:
            raise ConfigError("RunRequest: only the program can set a schedule's directory; give a schedule without one")

        if self.log_format not in (None, "text", "json"):
            raise ConfigError(f"RunRequest: the format of logs is {self.log_format!r}; it must be 'text' or 'json'")

    @property
    def overrides(self) -> dict[str, Any]:
        """The overrides of the program's options, as plain data."""
        schedule = self.savepoint_schedule
        given = {
            "parallelism": self.parallelism,
            "max_parallelism": self.max_parallelism,
            "engine": self.engine,
            "memory_bytes": self.memory_bytes,
            "savepoint_schedule": None
            if schedule is None
            else {"interval_ms": schedule.interval_ms, "keep_last": schedule.keep_last, "keep_for_ms": schedule.keep_for_ms},
            "spark": dict(self.spark) or None,
            "ship_env": self.ship_env or None,
            "pass_env": list(self.pass_env) or None,
            "autoscale": None if self.autoscale is None else asdict(self.autoscale),
        }
        return {option: value for option, value in given.items() if value is not None}

    @property
    def command_line(self) -> list[str]:
        """The request as arguments of `forkpoint run`."""
        return [*self.options, "--", self.app, *self.arguments]

    @property
    def options(self) -> list[str]:
        """The options of ``command_line``."""
        restore, schedule = self.restore, self.savepoint_schedule
        flags = {
            "-n": restore.allow_non_restored,
            "--pyflink": self.pyflink,
            "--allow-drained": restore.allow_drained,
            "--ship-env": self.ship_env,
            "--standby": self.standby,
            "--resumed": self.resumed,
            "--force": self.force,
        }
        values = [
            ("-s", restore.savepoint),
            ("--until", self.until),
            ("-p", self.parallelism),
            ("--max-parallelism", self.max_parallelism),
            ("--engine", self.engine),
            ("--memory", None if self.memory_bytes is None else f"{self.memory_bytes}b"),
            *(("--map", f"{old}={new}") for old, new in restore.renames.items()),
            *(("--accept", f"{uid}=empty") for uid in restore.accept_empty),
            *(
                []
                if schedule is None
                else [
                    ("--savepoint-every", f"{schedule.interval_ms}ms"),
                    ("--savepoint-keep-last", schedule.keep_last),
                    ("--savepoint-keep-for", None if schedule.keep_for_ms is None else f"{schedule.keep_for_ms}ms"),
                ]
            ),
            ("--autoscale", None if self.autoscale is None else f"{self.autoscale.minimum}:{self.autoscale.maximum}"),
            ("--name", self.name),
            ("--claim-mode", "claim" if restore.claim else None),
            *(("--conf", f"{name}={value}") for name, value in self.spark.items()),
            ("--pass-env", ",".join(self.pass_env) or None),
            ("--succeed", self.succeeds),
            ("--trial-epochs", self.trial_epochs),
            ("--capture", self.capture),
            ("--log-format", self.log_format),
        ]
        given = [flag for flag, on in flags.items() if on]
        if self.predecessor is not None:
            job, run = self.predecessor
            given += ["--predecessor", job, run or NO_RUN]
        return given + [part for option, value in values if value is not None for part in (option, str(value))]
