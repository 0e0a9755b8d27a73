"""The `supervise` command."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

import click

from forkpoint import operations
from forkpoint.cli.commands.run import request_of, run
from forkpoint.cli.options import DurationType
from forkpoint.cli.settings import Command, current
from forkpoint.graph.options import RestartStrategy
from forkpoint.operations.launch.supervisor import RESET_AFTER, Restart


class SuperviseCommand(Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            message = f"{error.format_message()} Options of `run` come after --: forkpoint supervise -- RUN-OPTIONS APP"
            raise click.UsageError(message, ctx) from None


@click.command(cls=SuperviseCommand)
@click.option(
    "--attempts",
    metavar="N",
    type=click.IntRange(0),
    help=f"Give up after N restarts without {RESET_AFTER.seconds // 60} minutes between two of them. [default: no limit]",
)
@click.option(
    "--delay",
    "delay_ms",
    metavar="TIME",
    type=DurationType(),
    default="1s",
    show_default=True,
    help="The delay before the first restart; it grows by half with each further one.",
)
@click.option(
    "--max-delay",
    "max_delay_ms",
    metavar="TIME",
    type=DurationType(),
    default="1min",
    show_default=True,
    help="The maximum delay.",
)
@click.argument("run_arguments", metavar="-- RUN-OPTIONS APP [-- ARGS]", nargs=-1, required=True, type=click.UNPROCESSED)
def supervise(attempts: int | None, delay_ms: int, max_delay_ms: int, run_arguments: Sequence[str]) -> None:
    """Keep a job running: run the program APP as `run` does, and restart it when it dies.

    A restart follows when its process is killed or Spark terminates; the job resumes from its last checkpoint. The job's own end,
    and failures that a new process would repeat, end the supervisor with the exit code of `run`.
    """
    ctx = click.get_current_context()
    configured = (ctx.find_root().default_map or {}).get("run", {})
    with run.make_context("run", list(run_arguments), parent=ctx, default_map=configured) as parsed:
        options = dict(parsed.params)
        given = parsed.get_parameter_source("detached")
    if options.pop("detached") and given is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("a supervised run is in the foreground; leave out -d", ctx)
    request = request_of(options.pop("app"), options.pop("args"), options)
    strategy = RestartStrategy.exponential_delay(delay_ms, max_delay_ms, reset_after=RESET_AFTER, attempts=attempts)
    settings = current()

    def on_restart(restart: Restart) -> None:
        data = {name: value for name, value in asdict(restart).items() if name != "failures"}
        limit = "" if attempts is None else f" of {attempts}"
        settings.output.event(
            "restarting",
            {**data, "attempts": attempts},
            f"{time.strftime('%Y-%m-%d %H:%M:%S')} {restart.reason}; starting it again in "
            f"{restart.delay_ms / 1000:.1f} s (restart {restart.number}{limit})",
        )

    def on_handed_over(successor: str) -> None:
        settings.output.event(
            "handed over",
            {"run": successor},
            f"{time.strftime('%Y-%m-%d %H:%M:%S')} the job was handed over to run {successor}, which is supervised from now on",
        )

    run_options = ["--output", settings.output_format, *(["--verbose"] if settings.verbose else [])]
    ctx.exit(
        operations.supervise(
            request, strategy, on_restart, on_handed_over=on_handed_over, state_root=settings.given_root, options=run_options
        )
    )
