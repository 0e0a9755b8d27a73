"""The `sql` command."""

from __future__ import annotations

from typing import Any

import click

from forkpoint.cli.commands.run import AppType, RunCommand, request_of, run_options, start
from forkpoint.operations.launch.program import is_sql


@click.command("sql", cls=RunCommand)
@run_options
@click.option("-f", "--file", "file", metavar="FILE", type=AppType(), required=True, help="The file with the statements.")
def sql_(detached: bool, file: str, **options: Any) -> None:
    """Run the SQL statements of FILE: its INSERTs are one job, with these options.

    The job has the file's name, unless SET 'pipeline.name' gives another. It is the same as `run FILE` for a file that ends with
    .sql.
    """
    if not (is_sql(file) or file.startswith("run:")):
        raise click.UsageError(f"{file} does not end with .sql, so it would run as a Python program; rename it")
    start(request_of(file, (), options), detached)
