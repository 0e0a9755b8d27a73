"""The `doctor` command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """Check that this machine, and the hosts of a Spark cluster, can run jobs.

    Tries here: Python, Java, memory, limits, ports, and whether the state root keeps what storage has to promise. Then on each
    host: Python and package versions, the state root, directories that all hosts must share, disk space, clocks. A job does the
    latter before its first commit. Exit code 0: all can; 1: some cannot.
    """
    settings = current()
    machine = operations.check_machine(settings.given_root)
    if any(check.problem for check in machine if check.name == "Java"):
        return _show(machine, {})
    reports = operations.doctor(
        spark=spark_settings(options), directories=directories, ship_env=options["ship_env"], pass_env=options["pass_env"],
        state_root=settings.given_root, observer=settings.output,
    )  # fmt: skip
    problems: dict[str, list[str]] = {}
    for report in reports:
        found = problems.setdefault(report.host, [])
        found += [problem for problem in report.problems if problem not in found]
    _show(machine, problems)


def _show(machine: Sequence[operations.Check], problems: Mapping[str, list[str]]) -> None:
    def show(out: TextOutput) -> None:
        for check in machine:
            out.line(Text.assemble((check.name, "bold"), ": ", check.found))
            if check.problem is not None:
                out.line(Text.assemble("  ", (check.problem, "red")))
        for host, found in sorted(problems.items()):
            out.line(
                Text.assemble((host, "bold"), ": ", ("cannot run jobs", "red") if found else ("can run jobs", "green"))
            )
            for problem in found:
                out.line(f"  it {problem}")

    hosts = [{"host": host, "problems": found} for host, found in sorted(problems.items())]
    checks = [{"name": each.name, "found": each.found, "problem": each.problem} for each in machine]
    current().output.result({"machine": checks, "hosts": hosts}, show)
    failed = any(problems.values()) or any(each.problem for each in machine)
    click.get_current_context().exit(failures.FAILED if failed else failures.OK)
