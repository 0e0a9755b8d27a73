"""The `run` command, and the options of all commands that start programs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NoReturn

import click

from forkpoint import logs, operations
from forkpoint.cli import failures
from forkpoint.cli.names import RESTORED
from forkpoint.cli.options import (
    accept_option,
    allow_non_restored_option,
    autoscale_option,
    map_option,
    pyflink_option,
    schedule_of,
    schedule_options,
)
from forkpoint.cli.output import Output, TextOutput
from forkpoint.cli.settings import Command, current
from forkpoint.cli.spark_options import spark_options, spark_settings
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.driver.run.stop import Result
from forkpoint.driver.start.restorer import NONE
from forkpoint.errors import ForkpointError, SavepointCorrupt
from forkpoint.graph.options import UPPER_BOUND_MAX_PARALLELISM, RestoreOptions
from forkpoint.operations import RunRequest
from forkpoint.operations.launch.detached import Reporter
from forkpoint.operations.launch.program_jobs import Announcer
from forkpoint.operations.launch.recorded import pack
from forkpoint.operations.launch.request import NO_RUN
from forkpoint.operations.launch.supervisor import SupervisedReport
from forkpoint.savepoint.catalog.listing import LATEST
from forkpoint.savepoint.catalog.names import named_savepoint
from forkpoint.storage.places import plain_place
from forkpoint.wording import parse_bytes, visible

_LONG_SECONDS = 2.0  # duration after which a step of the start is printed


class AppType(click.Path):
    """A program's file, or ``run:RUN`` for the recorded program of that run."""

    name = "app"

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, readable=True)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:  # type: ignore[override]
        return value if value.startswith("run:") else str(super().convert(value, param, ctx))


class RunCommand(Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            message = f"{error.format_message()} If it is the program's own, put it after --: forkpoint run APP -- …"
            raise click.UsageError(message, ctx) from None


detached_option = click.option("-d", "--detached", is_flag=True, help="Run in the background; return once the job runs.")


def start_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the start of a program and the restore of its state."""
    for option in (
        map_option,
        accept_option,
        pyflink_option,
        click.option("--engine", type=click.Choice(["spark", "local"]), help="[env: FORKPOINT_ENGINE; default: spark]"),
        click.option(
            "--max-parallelism", metavar="N", type=click.IntRange(1, UPPER_BOUND_MAX_PARALLELISM), help="Number of key groups."
        ),
        click.option(
            "-p",
            "--parallelism",
            metavar="N",
            type=click.IntRange(1, UPPER_BOUND_MAX_PARALLELISM),
            help="Subtasks of each stage.",
        ),
        click.option(
            "--memory",
            "memory_bytes",
            metavar="SIZE",
            callback=lambda ctx, option, value: None if value is None else parse_bytes("--memory", value),
            help="Memory of each subtask, such as 512m: an epoch reads as many elements as fit.",
        ),
        allow_non_restored_option,
        spark_options,
    ):
        command = option(command)
    return command


def request_of(app: str, args: Sequence[str], options: Mapping[str, Any]) -> RunRequest:
    """The request for the options of a command that starts programs."""
    given = options.get
    predecessor = given("predecessor")
    restore = RestoreOptions(
        given("savepoint"),
        options["allow_non_restored_state"],
        options["renames"],
        given("claim_mode") == "claim",
        given("allow_drained", False),
        options["accept_empty"],
    )
    return RunRequest(
        app,
        tuple(args),
        given("name"),
        restore,
        given("until"),
        options["parallelism"],
        options["max_parallelism"],
        options["engine"],
        schedule_of(given("every_ms"), given("keep_last"), given("keep_for_ms")),
        options["pyflink"],
        given("trial_epochs"),
        given("capture"),
        spark_settings(options),
        options["ship_env"],
        options["pass_env"],
        bool(given("standby")),
        given("autoscale"),
        given("succeeds"),
        bool(given("resumed")),
        None if predecessor is None else (predecessor[0], None if predecessor[1] == NO_RUN else predecessor[1]),
        bool(given("force")),
        memory_bytes=given("memory_bytes"),
    )


until_option = click.option(
    "--until",
    metavar="TIME|SAVEPOINT",
    help="Read at full speed and stop with a savepoint when event time reaches TIME (ISO 8601, UTC by default, or ms), or "
    "exactly at the source positions in SAVEPOINT.",
)


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of commands that run a job from its program."""
    for option in (
        click.option(
            "--force",
            is_flag=True,
            help="Start even if another run has led the job since this command was given; its output since may be repeated.",
        ),
        schedule_options,
        autoscale_option,
        until_option,
        click.option(
            "--claim-mode",
            type=click.Choice(["no-claim", "claim"]),
            default="no-claim",
            show_default=True,
            help="Whether the run takes ownership of the savepoint.",
        ),
        click.option("--name", metavar="JOB", help="Override the program's job name; with -s, this forks the job."),
        click.option(
            "--standby",
            is_flag=True,
            help="Stand by, and take over when the driver of the job's leader dies. Without a leader, lead the job at once.",
        ),
        click.option(
            "--allow-drained",
            is_flag=True,
            help="Resume from the newest checkpoint even if the job was stopped with a drain; new elements may be late.",
        ),
        start_options,
        click.option(
            "-s",
            "--savepoint",
            metavar="SAVEPOINT|latest|none",
            type=RESTORED,
            help="Start from this savepoint (path, URL, id or label), from the job's latest, or with empty state. [default: from "
            "the job's newest checkpoint, if it has one]",
        ),
        detached_option,
    ):
        command = option(command)
    return command


@click.command(cls=RunCommand)
@run_options
@click.option("--driver-report-fd", "report_fd", type=int, hidden=True)
@click.option("--while-open", type=int, hidden=True)
@click.option("--driver-log", "log", hidden=True)
@click.option("--supervisor", type=(int, int), hidden=True)
@click.option("--succeed", "succeeds", metavar="RUN", hidden=True)
@click.option("--resumed", is_flag=True, hidden=True)
@click.option("--predecessor", type=(str, str), hidden=True)
@click.option("--trial-epochs", type=click.IntRange(1), hidden=True)
@click.option("--capture", metavar="DIR", hidden=True)
@click.argument("app", type=AppType())
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    detached: bool,
    report_fd: int | None,
    while_open: int | None,
    log: str | None,
    supervisor: tuple[int, int] | None,
    app: str,
    args: Sequence[str],
    **options: Any,
) -> None:
    """Run the program APP as `python APP ARGS` would, and its jobs with these options.

    APP is a file, or run:RUN for the recorded program, arguments and options of that run. The program's own arguments come after
    `--`. Ctrl-C cancels a job in the foreground; its checkpoints stay, and the next run resumes from the last one.
    """
    request = request_of(app, args, options)
    if report_fd is not None:
        _in_this_process(request, _Background(report_fd, while_open), log)
    elif supervisor is not None:
        pack(request.ship_env, current().output)
        _in_this_process(request, _Supervised(current().output, SupervisedReport(*supervisor)), patient=True)
    else:
        start(request, detached)


def start(request: RunRequest, detached: bool) -> None:
    """Run a program, in the background or in this process."""
    if detached:
        _in_background(request)
    else:
        pack(request.ship_env, current().output)
        _in_this_process(request, _Foreground(current().output))


def _in_this_process(request: RunRequest, announcer: Announcer, log: str | None = None, *, patient: bool = False) -> None:
    settings = current()
    logs.begin()
    try:
        savepoint = request.restore.savepoint
        if savepoint is not None and savepoint not in (LATEST, NONE):  # fail early, before an engine starts
            named_savepoint(settings.state_root.storage, savepoint)
        request = operations.with_predecessor(settings.state_root, request)
        ended = operations.drive(request, announcer, log=log, state_root=settings.given_root, patient=patient, rest=_rest)
    except ForkpointError as error:  # the program has not run
        _fail(failures.of_job(error) if isinstance(error, SavepointCorrupt) else failures.describe(error), announcer)
    if ended.job_error is not None:
        failure = failures.of_job(ended.job_error)
    elif ended.program_error is not None:
        failure = failures.describe(ended.program_error)
    else:
        if ended.code == 128 + signal.SIGINT and isinstance(announcer, _Foreground) and not announcer.has_begun:
            settings.output.remark("interrupted before a job started")
        click.get_current_context().exit(ended.code)
    _fail(failure, announcer)


def _rest(driver: JobDriver) -> Callable[[str], Any]:
    """The REST API and the page for one job, at its own port; loaded on the first request."""

    def make(token: str) -> Any:
        from forkpoint.server.app import job_application

        return job_application(driver.history.storage.url, driver.job, token)

    return make


def _fail(failure: failures.Failure, announcer: Announcer) -> NoReturn:
    announcer.failed(failure.code, failure.message, failure.exit_code)
    if logs.chosen() == "json" and isinstance(current().output, TextOutput):
        logs.write_failure(failure.message, failure.details or failure.with_traceback().details)
        click.get_current_context().exit(failure.exit_code)
    current().end(failure)


def _in_background(request: RunRequest) -> None:
    settings = current()
    try:
        started = operations.run(request, state_root=settings.given_root, verbose=settings.verbose, observer=settings.output)
    except KeyboardInterrupt:
        settings.output.remark("stopped waiting; the job may still start: see `forkpoint list`")
        click.get_current_context().exit(128 + signal.SIGINT)

    def show(out: TextOutput) -> None:
        out.line(f"job {started.job}, run {started.run}: {started.state} as process {started.pid}")
        if started.failure is not None:
            out.line(f"its first epoch fails again and again: {started.failure}")
        out.line(f"log: {started.log}")

    settings.output.result(asdict(started), show)
    if started.failure is not None:
        click.get_current_context().exit(failures.JOB_FAILED)


class _LastWords(Announcer):
    def exiting(self, message: str) -> None:
        click.echo(visible(message), err=True)

    def killed(self, message: str) -> None:
        os.write(2, visible(message).encode())


class _Background(_LastWords, Reporter):
    pass


class _Foreground(_LastWords):
    def __init__(self, output: Output) -> None:
        self._output = output
        self._remark: threading.Timer | None = None  # prints the current step if it takes long
        self.has_begun = False

    def starting(self, step: str) -> None:
        self._cancel_remark()
        self._remark = threading.Timer(_LONG_SECONDS, self._output.remark, [step])
        self._remark.daemon = True
        self._remark.start()

    def _cancel_remark(self) -> None:
        if self._remark is not None:
            self._remark.cancel()

    def exiting(self, message: str) -> None:
        self._cancel_remark()
        super().exiting(message)

    def failed(self, code: str, message: str, exit_code: int) -> None:
        self._cancel_remark()

    def running(self, driver: JobDriver) -> None:
        self._cancel_remark()
        self.has_begun = True
        data = {"job": driver.job, "run": driver.run_id, "state_root": plain_place(driver.history.storage.url)}
        state = "standby" if driver.standby else "running"
        self._output.event(state, data, f"job {driver.job}, run {driver.run_id}: {state}")

    def ended(self, driver: JobDriver, result: Result) -> None:
        self._cancel_remark()
        self.has_begun = True
        savepoint = None if result.savepoint is None else plain_place(result.savepoint)
        data = {"job": driver.job, "run": driver.run_id, "outcome": result.outcome, "epoch": result.epoch, "savepoint": savepoint}
        at = f", savepoint {savepoint}" if savepoint is not None else ""
        self._output.event("ended", data, f"job {driver.job}, run {driver.run_id}: {result.outcome}{at}")


class _Supervised(_Foreground):
    def __init__(self, output: Output, report: SupervisedReport) -> None:
        super().__init__(output)
        self._report = report

    def begun(self, driver: JobDriver) -> None:
        self._report.begun(driver)

    def failed(self, code: str, message: str, exit_code: int) -> None:
        self._report.failed(code)
