"""The command that runs a program."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from forkpoint.api.launch import Launch, launching
from forkpoint.cli import failures
from forkpoint.cli.detached import Reporter, Started, start_detached
from forkpoint.cli.driving import Announcer, Driving
from forkpoint.cli.failures import Failure
from forkpoint.cli.finding import named_savepoint
from forkpoint.cli.output import Output, TextOutput
from forkpoint.cli.program import AppType, Source, as_main, run_program
from forkpoint.cli.recorded import Invocation, invocation
from forkpoint.cli.replaying import capturing, until_from
from forkpoint.cli.scheduling import schedule_of, schedule_options
from forkpoint.cli.settings import Command, Settings, current
from forkpoint.cli.text import place, visible
from forkpoint.driver.job_driver import JobDriver, Result
from forkpoint.driver.restorer import RestoreOptions
from forkpoint.driver.trial import Trial
from forkpoint.errors import ForkpointError, SavepointCorrupt
from forkpoint.graph.options import UPPER_BOUND_MAX_PARALLELISM, RestartStrategy
from forkpoint.pyflink import install, installed

WORDS = ("latest", "none")


def split_renames(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """The pairs that --map gives, old → new."""
    renames = {}
    for each in given:
        old, _, new = each.partition("=")
        if not (old and new):
            raise click.BadParameter(f"{each!r} is not of the form OLD=NEW", ctx, param)
        renames[old] = new
    return renames


class RunCommand(Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            message = f"{error.format_message()} If it is the program's own, put it behind --: forkpoint run APP -- …"
            raise click.UsageError(message, ctx) from None


def pyflink_program(ctx: click.Context, param: click.Parameter, given: bool) -> bool:
    """Let the program find forkpoint as ``pyflink``."""
    if given:
        install()
    return given


pyflink_option = click.option(
    "--pyflink", is_flag=True, callback=pyflink_program, help="The program imports pyflink, and is to find forkpoint there."
)  # fmt: skip


def start_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say how a program is started, and how state is brought into it."""
    for option in (
        click.option(
            "--map", "renames", metavar="OLD=NEW", multiple=True, callback=split_renames,
            help="The state of uid OLD goes to uid NEW; repeatable.",
        ),
        pyflink_option,
        click.option("--engine", type=click.Choice(["spark", "local"]), help="[env: FORKPOINT_ENGINE; default: spark]"),
        click.option(
            "--max-parallelism", type=click.IntRange(1, UPPER_BOUND_MAX_PARALLELISM), help="The number of key groups."
        ),
        click.option(
            "-p", "--parallelism", type=click.IntRange(1, UPPER_BOUND_MAX_PARALLELISM), help="Subtasks of each stage."
        ),
        click.option(
            "-n", "--allow-non-restored-state", is_flag=True, help="Drop saved state that the program has no place for."
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def start_arguments(options: Mapping[str, Any]) -> list[str]:
    """``start_options`` as they were given, as arguments of ``run``."""
    given = ["-n"] if options["allow_non_restored_state"] else []
    given += ["--pyflink"] if options["pyflink"] else []
    for name, option in (("parallelism", "-p"), ("max_parallelism", "--max-parallelism"), ("engine", "--engine")):
        given += [option, str(options[name])] if options[name] is not None else []
    return given + [part for old, new in options["renames"].items() for part in ("--map", f"{old}={new}")]


until_option = click.option(
    "--until", metavar="TIME|SAVEPOINT",
    help="Read at full speed and stop with a savepoint when event time has come to TIME (ISO 8601, UTC unless it says "
    "otherwise, or ms), or exactly where the sources stand in SAVEPOINT.",
)  # fmt: skip


@click.command(cls=RunCommand)
@click.option("-d", "--detached", is_flag=True, help="Run in the background; returns once the job runs.")
@click.option(
    "-s", "--savepoint", metavar="SAVEPOINT|latest|none",
    help="Start from this savepoint (path, URL, id or label), from the job's latest, or from nothing. By default: from the "
    "job's newest checkpoint, if it has one.",
)  # fmt: skip
@start_options
@click.option(
    "--allow-drained", is_flag=True,
    help="Go on from the newest checkpoint although the job was stopped with a drain, so that what comes now may be late.",
)  # fmt: skip
@click.option("--name", metavar="JOB", help="The job's name, in place of the program's: with -s, a fork of the job.")
@click.option(
    "--claim-mode", type=click.Choice(["no-claim", "claim"]), default="no-claim", show_default=True,
    help="Whether the run owns the savepoint from now on.",
)  # fmt: skip
@until_option
@schedule_options
@click.option("--driver-report-fd", "report_fd", type=int, hidden=True)
@click.option("--driver-log", "log", hidden=True)
@click.option("--trial-epochs", type=click.IntRange(1), hidden=True)
@click.option("--capture", metavar="DIR", hidden=True)
@click.argument("app", type=AppType())
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    detached: bool, savepoint: str | None, allow_drained: bool, allow_non_restored_state: bool, parallelism: int | None,
    max_parallelism: int | None, engine: str | None, name: str | None, claim_mode: str,
    renames: dict[str, str], until: str | None, every_ms: int | None, keep_last: int | None, keep_for_ms: int | None,
    report_fd: int | None, log: str | None, trial_epochs: int | None,
    capture: str | None, app: str, args: Sequence[str], pyflink: bool,
) -> None:  # fmt: skip
    """Run the program APP as `python APP ARGS` would; its jobs run as the options say.

    APP is a file, or run:RUN for what that run was started with: the program as it was then, its arguments and options.
    The program's own arguments come after `--`. Ctrl-C cancels a job that runs in the foreground; its checkpoints stay,
    and the next run goes on from the last one.
    """
    settings = current()
    if detached:
        _run_detached(app, _without_detached(), name)
        return
    if savepoint is not None and savepoint not in WORDS:
        savepoint = _checked(settings, savepoint)
    storage, root = settings.storage, settings.root
    given = {
        "parallelism": parallelism, "max_parallelism": max_parallelism, "engine": engine,
        "savepoint_schedule": schedule_of(every_ms, keep_last, keep_for_ms),
    }  # fmt: skip
    options: dict[str, Any] = {option: value for option, value in given.items() if value is not None}
    asked = invocation(settings, app, args, options, name)
    laid = asked.options if settings.given_root is None else {**asked.options, "state_root": root}
    if capture is not None:
        # A version that fails is to say so, not to try for ever; and none is to leave savepoints of its own behind.
        laid = {**laid, "restart": RestartStrategy.none(), "savepoint_schedule": None}
    reporter = Reporter(report_fd) if report_fd is not None else None
    driving = Driving(reporter or _Foreground(settings.output), log, asked.record)
    launch = Launch(
        options=laid,
        state_root=root,
        job_name=asked.name,
        restore=RestoreOptions(savepoint, allow_non_restored_state, renames, claim_mode == "claim", allow_drained),
        on_driver=driving.on_driver,
        on_step=driving.on_step,
        until=None if until is None else until_from(storage, until),
        trial=None if trial_epochs is None else Trial(trial_epochs),
        sinks=None if capture is None else capturing(capture),
        generated_uids=installed(),
    )
    if logging.lastResort is not None:  # what warnings go through unless the program sets up logging
        logging.lastResort.setFormatter(_VisibleFormatter("%(asctime)s %(levelname)s %(message)s"))
    ending = _run(asked, launch, driving)
    if isinstance(ending, Failure):
        if reporter is not None:
            reporter.failed(ending)
        settings.output.failure(ending.with_traceback() if settings.verbose else ending)
        ending = ending.exit_code
    click.get_current_context().exit(ending)


def _checked(settings: Settings, savepoint: str) -> str:
    """Where the savepoint is. One that is missing or damaged is refused at once, before an engine is started."""
    try:
        return named_savepoint(settings.storage, savepoint).url
    except SavepointCorrupt as error:
        settings.output.failure(_job_failure(error))
        click.get_current_context().exit(failures.REFUSED)


def _run(asked: Invocation, launch: Launch, driving: Driving) -> Failure | int:
    """Run the program and its jobs to their end: what went wrong, or the exit code."""
    app = asked.source.path
    with driving.signals(), launching(launch), as_main(asked.source, asked.arguments):
        try:
            code = _program_code(asked.source)
            driving.wait()
        except BaseException as error:
            driving.cancel_all()
            driving.wait()
            if driving.interrupted is None:
                return _program_failure(app, error, driving)
    if driving.interrupted is not None:
        return 128 + driving.interrupted
    if driving.errors:
        return _job_failure(driving.errors[0])
    if not driving.started and code == failures.OK:
        return Failure(
            "NoJob", f"{app} came to its end without running a job; it has to call execute() on its environment",
            failures.FAILED,
        )  # fmt: skip
    return code


class _VisibleFormatter(logging.Formatter):
    """Errors that are logged may quote records."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def _program_code(source: Source) -> int:
    try:
        run_program(source)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or failures.OK
        click.echo(visible(str(error.code)), err=True)
        return failures.FAILED
    return failures.OK


def _program_failure(app: str, error: BaseException, driving: Driving) -> Failure:
    return _job_failure(error) if any(error is each for each in driving.errors) else program_failure(app, error)


def program_failure(app: str, error: BaseException) -> Failure:
    """What the program itself raised."""
    program = os.path.abspath(app)
    if isinstance(error, ForkpointError):
        failure = failures.describe(error)
        place = failures.user_place(error, program)
        return failure if place is None else replace(failure, message=f"{failure.message}\n  at {place}")
    shown = f"{app} raised {type(error).__name__}: {failures.first_line(str(error))}".rstrip(": ")
    return Failure("ProgramError", shown, failures.FAILED, failures.user_traceback(error, program), error)


def _job_failure(error: BaseException) -> Failure:
    if not isinstance(error, ForkpointError):
        shown = f"the job failed: {type(error).__name__}: {error}"
        return Failure("JobFailed", shown, failures.JOB_FAILED, cause=error).with_traceback()
    described = failures.describe(error)
    if isinstance(error, SavepointCorrupt):
        return replace(described, exit_code=failures.REFUSED)
    if described.exit_code == failures.FAILED:
        return replace(described, message=f"the job failed: {described.message}", exit_code=failures.JOB_FAILED)
    return described


class _Foreground(Announcer):
    def __init__(self, output: Output) -> None:
        self._output = output

    def starting(self, step: str) -> None:
        return None

    def running(self, driver: JobDriver) -> None:
        data = {"job": driver.job, "run": driver.run_id, "state_root": place(driver.history.storage.url)}
        self._output.event("running", data, f"job {driver.job}, run {driver.run_id}: running")

    def ended(self, driver: JobDriver, result: Result) -> None:
        savepoint = None if result.savepoint is None else place(result.savepoint)
        data = {
            "job": driver.job, "run": driver.run_id, "outcome": result.outcome, "epoch": result.epoch,
            "savepoint": savepoint,
        }  # fmt: skip
        at = f", savepoint {savepoint}" if savepoint is not None else ""
        self._output.event("ended", data, f"job {driver.job}, run {driver.run_id}: {result.outcome}{at}")


def _without_detached() -> list[str]:
    """The command's own options and arguments again, as its context has them."""
    ctx = click.get_current_context()
    given: list[str] = []
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if not isinstance(param, click.Option) or param.name in ("detached", "report_fd", "log") or not value:
            continue
        if param.is_flag:
            given.append(param.opts[0])
        elif param.name == "renames":
            given += [part for old, new in value.items() for part in (param.opts[0], f"{old}={new}")]
        else:
            given += [param.opts[0], str(value)]
    return [*given, "--", ctx.params["app"], *ctx.params["args"]]


def _run_detached(app: str, arguments: Sequence[str], name: str | None) -> None:
    settings = current()
    try:
        with settings.output.steps(f"starting {app}") as report:
            started = start_detached(settings, app, arguments, report)
    except KeyboardInterrupt:
        settings.output.remark("not waited for any longer; the job may still come up: see `forkpoint list`")
        click.get_current_context().exit(128 + signal.SIGINT)
    if isinstance(started, Failure):
        settings.output.failure(started)
        click.get_current_context().exit(started.exit_code)
    assert isinstance(started, Started)
    data = {**started.report, "pid": started.pid, "log": started.log}

    def show(out: TextOutput) -> None:
        out.line(f"job {data['job']}, run {data['run']}: {data['state']} as process {started.pid}")
        out.line(f"log: {started.log}")

    settings.output.result(data, show)
