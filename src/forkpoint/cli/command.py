"""The ``forkpoint`` command group and its error handling."""

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
from forkpoint.lazy import docstring

COMMANDS = {
    "run": "run.run",
    "supervise": "supervise.supervise",
    "upgrade": "upgrade.upgrade",
    "fork": "upgrade.fork",
    "ab": "ab.ab",
    "check": "check.check",
    "plan": "check.plan",
    "explain": "jobs.explain",
    "recompute": "recompute.recompute",
    "list": "jobs.list_",
    "savepoint": "jobs.savepoint",
    "rescale": "jobs.rescale",
    "stop": "jobs.stop",
    "cancel": "jobs.cancel",
    "savepoints": "savepoints.savepoints",
    "show": "savepoints.show",
    "state": "state.state",
    "sql": "sql.sql_",
    "diff": "state.diff_",
    "edit": "savepoints.edit",
    "dispose": "savepoints.dispose",
    "label": "savepoints.label",
    "gc": "upkeep.gc",
    "recover": "upkeep.recover",
    "publish": "jobs.publish",
    "tree": "jobs.tree",
    "doctor": "upkeep.doctor",
    "server": "server.server",
    "completion": "config.completion",
    "config": "config.config",
}
"""forkpoint's own commands by name: the module in ``cli.commands`` and the function, whose docstring is the command's help."""


def short_helps() -> dict[str, str]:
    """The one-line help of all commands, without loading them."""
    own = {name: packages.short_help(docstring(*_location(name))) for name in COMMANDS}
    return packages.short_helps() | own


def _location(command: str) -> tuple[str, str]:
    module, _, function = COMMANDS[command].partition(".")
    return f"forkpoint.cli.commands.{module}", function


class Group(click.Group):
    """Loads a command when it is called, and converts errors to a message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *packages.names()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return packages.load(cmd_name)
        module, function = _location(cmd_name)
        command: click.Command = getattr(import_module(module), function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(short_helps().items()))

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
        except OSError as error:  # of this machine: a read-only directory, a full disk
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
