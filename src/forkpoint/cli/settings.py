"""The options of every command, before or after the command's name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import click

from forkpoint.cli.failures import Failure
from forkpoint.cli.names import PlaceType
from forkpoint.cli.output import JsonOutput, Output, TextOutput
from forkpoint.operations.roots import DEFAULT_STATE_ROOT, STATE_ROOT, StateRoot


@dataclass(frozen=True)
class Settings:
    """``given_root``: from the command line; a program's own takes precedence over the environment and the default."""

    given_root: str | None = None
    output_format: str = "text"
    verbose: bool = False

    @property
    def state_root(self) -> StateRoot:
        return StateRoot(self.given_root)

    @property
    def output(self) -> Output:
        return JsonOutput() if self.output_format == "json" else TextOutput()

    def end(self, failure: Failure) -> NoReturn:
        """Print why the command failed, and exit."""
        self.output.failure(failure.with_traceback() if self.verbose else failure)
        click.get_current_context().exit(failure.exit_code)


def current() -> Settings:
    """The settings of the current command."""
    # Of the root: the command's own context may be outdated.
    return click.get_current_context().find_root().find_object(Settings) or Settings()


def _change(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    # The group and the command both have each option; if both are given, the command's wins.
    if value not in (None, False):
        names = {"state_root": "given_root", "output": "output_format", "verbose": "verbose"}
        root = ctx.find_root()
        root.obj = replace(root.obj or Settings(), **{names[param.name or ""]: value})


def options() -> list[click.Parameter]:
    """New instances of the options."""
    return [
        click.Option(
            ["--state-root"], metavar="PATH|URL", type=PlaceType(), expose_value=False, callback=_change,
            help=f"Where jobs keep their state. [env: {STATE_ROOT}; default: {DEFAULT_STATE_ROOT}]",
        ),
        click.Option(
            ["--output"], type=click.Choice(["text", "json"]), expose_value=False, callback=_change,
            help="The format of results. [default: text]",
        ),
        click.Option(
            ["-v", "--verbose"], is_flag=True, expose_value=False, callback=_change,
            help="Show tracebacks of errors.",
        ),
    ]  # fmt: skip


class Command(click.Command):
    """A command with the common options after its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(options())
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])
