"""The `doctor` command."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text

from forkpoint import operations
from forkpoint.cli import failures
from forkpoint.cli.names import PlaceType
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current
from forkpoint.cli.spark_options import spark_options, spark_settings


@click.command(cls=Command)
@click.option(
    "--directory", "directories", metavar="DIR", type=PlaceType(), multiple=True,
    help="A directory that sinks write to; repeatable.",
)  # fmt: skip
@spark_options
def doctor(directories: tuple[str, ...], **options: Any) -> None:
    """Check that the hosts of a Spark cluster can run jobs.

    Tries on each host: Python and package versions, the state root (reading, writing, creating), directories that all hosts
    must share, disk space, clocks. A job does the same before its first commit. Exit code 0: all hosts can; 1: some cannot.
    """
    settings = current()
    reports = operations.doctor(
        spark=spark_settings(options), directories=directories, ship_env=options["ship_env"], pass_env=options["pass_env"],
        state_root=settings.given_root, observer=settings.output,
    )  # fmt: skip
    problems: dict[str, list[str]] = {}
    for report in reports:
        found = problems.setdefault(report.host, [])
        found += [problem for problem in report.problems if problem not in found]

    def show(out: TextOutput) -> None:
        for host, found in sorted(problems.items()):
            out.line(
                Text.assemble((host, "bold"), ": ", ("cannot run jobs", "red") if found else ("can run jobs", "green"))
            )
            for problem in found:
                out.line(f"  it {problem}")

    hosts = [{"host": host, "problems": found} for host, found in sorted(problems.items())]
    settings.output.result({"hosts": hosts}, show)
    click.get_current_context().exit(failures.FAILED if any(problems.values()) else failures.OK)
