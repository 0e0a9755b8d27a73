"""The `sql` command."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forkpoint.cli.commands.run import AppType, RunCommand, request_of, run_options, start
from forkpoint.cli.settings import current
from forkpoint.extras import require
from forkpoint.operations.launch.program import is_sql

if TYPE_CHECKING:
    from forkpoint.table.interactive import Interactive


@click.command("sql", cls=RunCommand)
@run_options
@click.option("-f", "--file", "file", metavar="FILE", type=AppType(), help="The file with the statements.")
@click.option(
    "-e", "--execute", "statements", metavar="STATEMENTS", multiple=True, help="Statements to execute; may be given repeatedly."
)
def sql_(detached: bool, file: str | None, statements: tuple[str, ...], **options: Any) -> None:
    """Run the SQL statements of FILE, execute STATEMENTS, or without both open a shell.

    The INSERTs of FILE are one job, with these options. It has the file's name, unless SET 'pipeline.name' gives another. It is
    the same as `run FILE` for a file that ends with .sql.

    With -e, FILE only defines tables, views and settings. A query runs on the local engine, unless --engine or SET
    'execution.engine' says otherwise, and prints its result: as a table, or with --output json as an object in each line. If its
    input has no end, it prints changes until Ctrl-C. The INSERTs of STATEMENTS are one job, which goes on if they are entered
    again before it has finished; other statements are another job.
    """
    if file is not None and not (is_sql(file) or (file.startswith("run:") and not statements)):
        raise click.UsageError(f"{file} does not end with .sql, so it would run as a Python program; rename it")
    if file is not None and not statements:
        start(request_of(file, (), options), detached)
        return
    _find_modules_in(os.getcwd() if file is None else os.path.dirname(os.path.realpath(file)))
    interactive = _interactive(file, options["engine"])
    if statements or not sys.stdin.isatty():
        _execute(interactive, ";\n".join(statements or [sys.stdin.read()]), detached, options)
        return
    require("prompt_toolkit", "the SQL shell")
    from forkpoint.cli.shell import run_shell

    run_shell(interactive, options)


def _find_modules_in(directory: str) -> None:
    """Let functions be in modules beside the file, or in the current directory, also for jobs that are started."""
    sys.path.insert(1, directory)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (directory, os.environ.get("PYTHONPATH"))))


def _interactive(file: str | None, engine: str | None) -> Interactive:
    from forkpoint.api.environment import StreamExecutionEnvironment
    from forkpoint.sql.errors import Text
    from forkpoint.table.interactive import Interactive
    from forkpoint.table.script import script_text
    from forkpoint.table.session import Session

    env = StreamExecutionEnvironment.get_execution_environment()
    env.launch = replace(env.launch, state_root=current().state_root.place)
    if engine is not None:
        env.configure({"execution.engine": engine})
    found = Interactive(Session(env))
    if file is not None:
        found.define(Text(script_text(Path(file).read_bytes(), file), Path(file).name))
    return found


def _execute(interactive: Interactive, text: str, detached: bool, options: dict[str, Any]) -> None:
    from forkpoint.cli.sql_results import show, start_entered
    from forkpoint.sql.errors import Text
    from forkpoint.table.interactive import Program

    output = current().output
    for outcome in interactive.run(Text(text, "-e")):
        if isinstance(outcome, Program):
            start_entered(outcome, detached, options)
        elif outcome is not None:
            show(outcome, output)
