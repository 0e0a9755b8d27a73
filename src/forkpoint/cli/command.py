"""The ``forkpoint`` command group, and its error handling."""

from __future__ import annotations

import os
import signal
from importlib.metadata import version
from typing import Any

import click

from forkpoint.cli import failures
from forkpoint.cli.ab import ab
from forkpoint.cli.check import check
from forkpoint.cli.completion import completion
from forkpoint.cli.config import config
from forkpoint.cli.doctor import doctor
from forkpoint.cli.edit import edit
from forkpoint.cli.fork import fork
from forkpoint.cli.gc import gc
from forkpoint.cli.import_spark import import_spark
from forkpoint.cli.jobs import cancel, list_, rescale, savepoint, stop
from forkpoint.cli.output import JsonOutput
from forkpoint.cli.publish import publish
from forkpoint.cli.recovering import recover
from forkpoint.cli.run import run
from forkpoint.cli.savepoints import dispose, label, savepoints, show
from forkpoint.cli.server import server
from forkpoint.cli.settings import configure, current, options
from forkpoint.cli.state import diff_, sql_, state
from forkpoint.cli.supervise import supervise
from forkpoint.cli.tree import tree
from forkpoint.cli.upgrade import upgrade
from forkpoint.errors import ForkpointError


class Group(click.Group):
    """Turns errors into a message and an exit code."""

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
    commands=[run, supervise, upgrade, fork, ab, check, list_, savepoint, rescale, stop, cancel, savepoints, show, state, sql_,
              diff_, edit, import_spark, dispose, label, gc, recover, publish, tree, doctor, server, completion, config],
    no_args_is_help=True,
)  # fmt: skip
click.version_option(version("forkpoint"), prog_name="forkpoint", message="%(prog)s %(version)s")(main)
