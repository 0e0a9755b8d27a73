"""The ``forkpoint`` command group, and its error handling."""

from __future__ import annotations

import os
import signal
from importlib import import_module
from typing import Any

import click

from forkpoint.cli import failures, packages
from forkpoint.cli.output import JsonOutput
from forkpoint.cli.settings import configure, current, options
from forkpoint.errors import ForkpointError

COMMANDS = {
    "run": ("run.run", "Run the program APP as `python APP ARGS` would, and its jobs with these options."),
    "supervise": (
        "supervise.supervise",
        "Keep a job running: run the program APP as `run` does, and start it again when it dies.",
    ),
    "upgrade": ("upgrade.upgrade", "Replace the program of JOB with APP; roll back if APP fails."),
    "fork": ("upgrade.fork", "Start the program APP as a new job from a savepoint, or from the current state of a running JOB."),
    "ab": ("ab.ab", "Run APP_A and APP_B from SAVEPOINT over the same inputs, one after the other, and compare their output."),
    "check": ("check.check", "Check what `run -s` would do with a savepoint's state in the program APP."),
    "list": ("jobs.list_", "List running jobs, and lost ones, whose driver was killed."),
    "savepoint": ("jobs.savepoint", "Take a savepoint of JOB while it runs, and print its path."),
    "rescale": ("jobs.rescale", "Change the parallelism of JOB while it runs, without a restart."),
    "stop": ("jobs.stop", "Stop JOB with a savepoint, and print the savepoint's path."),
    "cancel": ("jobs.cancel", "Cancel JOB, without a savepoint."),
    "savepoints": ("savepoints.savepoints", "List the savepoints of JOB, or of all jobs, below the state root, oldest first."),
    "show": (
        "savepoints.show",
        "Show SAVEPOINT (path, URL, id or label): operators, states with their types, positions, watermarks.",
    ),
    "state": (
        "state.state",
        "Read the state of a SAVEPOINT (path, URL, id, label, or `latest`), or of a JOB at its last committed epoch.",
    ),
    "sql": (
        "state.sql_",
        "Run a SELECT over the state of JOB at its last committed epoch, or over SAVEPOINT: the same as `state query`.",
    ),
    "diff": (
        "state.diff_",
        "Compare the savepoints BEFORE and AFTER: entries by operator and state, timers, positions, watermarks.",
    ),
    "edit": ("savepoints.edit", "Write a changed copy of SAVEPOINT (path, URL, id, label, or `latest`), and print its path."),
    "dispose": ("savepoints.dispose", "Delete SAVEPOINT (path, URL, id or label)."),
    "label": ("savepoints.label", "Set the label or note of SAVEPOINT (path, URL, id or label), or both."),
    "gc": ("upkeep.gc", "Remove what dead runs of JOB, or of all jobs, left below the state root and nothing needs."),
    "recover": (
        "upkeep.recover",
        "Recover JOB from its newest whole checkpoint or savepoint, if its newest checkpoint is damaged.",
    ),
    "publish": ("jobs.publish", "Publish what JOB has committed and its dead driver left unpublished, without starting the job."),
    "tree": ("jobs.tree", "Draw the history of JOB, or of all jobs: runs and savepoints with their parents, newest first."),
    "doctor": ("upkeep.doctor", "Check that this machine, and the hosts of a Spark cluster, can run jobs."),
    "server": ("server.server", "Serve a web page, REST and metrics for all jobs below the state root, until Ctrl-C."),
    "completion": (
        "config.completion",
        "Print the script that makes SHELL complete commands, options, jobs, savepoints, uids and states.",
    ),
    "config": ("config.config", "Show the settings of forkpoint.toml, the environment and the command line."),
}
"""By name: where each command is, and its help in one line. Those of packages are not among them."""


class Group(click.Group):
    """Loads a command when it is called. Turns errors into a message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *packages.names()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return packages.load(cmd_name)
        module, name = COMMANDS[cmd_name][0].split(".")
        command: click.Command = getattr(import_module(f"forkpoint.cli.commands.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        helps = packages.short_helps() | {name: text for name, (_, text) in COMMANDS.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(helps.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            configure(ctx)
            return super().invoke(ctx)
        except ForkpointError as error:
            current().end(failures.describe(error))
        except click.UsageError as error:
            if not isinstance(current().output, JsonOutput):
                raise
            current().end(failures.Failure("UsageError", error.format_message(), failures.USAGE))
        except (BrokenPipeError, click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(128 + signal.SIGINT)
        except OSError as error:  # this machine's: a directory that cannot be written, a full disk
            where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
            message = f"{where}{error.strerror or error}; check the path and that this user may read and write there"
            current().end(failures.Failure("OSError", message, failures.FAILED, cause=error))
        except Exception as error:
            message = f"{type(error).__name__}: {error}; this is a bug in forkpoint: please report it, with the traceback that"
            current().end(failures.Failure("InternalError", f"{message} --verbose shows", failures.FAILED, cause=error))


main = Group(
    "forkpoint",
    params=options(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    help="Stateful stream processing: stop, fork and rewind jobs with savepoints.",
    no_args_is_help=True,
)
click.version_option(package_name="forkpoint", prog_name="forkpoint", message="%(prog)s %(version)s")(main)
