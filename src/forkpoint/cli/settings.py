"""The options common to all commands, given before or after the command's name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeAlias

import click

from forkpoint import logs
from forkpoint.api.launch import Setting
from forkpoint.cli.defaults import Known, command_settings, default_map
from forkpoint.cli.failures import Failure
from forkpoint.cli.names import PlaceType
from forkpoint.cli.output import JsonOutput, Output, TextOutput
from forkpoint.config_file import CONFIG, DEFAULT_STATE_ROOT, FILE, STATE_ROOT
from forkpoint.logs import LogFormat
from forkpoint.operations.roots import StateRoot

Configured: TypeAlias = Mapping[str, tuple[Known, Setting]]


@dataclass(frozen=True)
class Settings:
    """The common options. ``given_…``: from the command line. A program's own state root takes precedence over the environment's,
    the file's and the default. ``as_given``: use only the command line's options, for drivers that forkpoint starts itself.
    ``configured``: the options set by the environment and the file."""

    given_root: str | None = None
    given_format: str | None = None
    given_verbose: bool = False
    given_log_format: LogFormat | None = None
    as_given: bool = False
    configured: Configured = field(default_factory=dict)

    @property
    def state_root(self) -> StateRoot:
        return StateRoot(self.given_root)

    @property
    def output_format(self) -> str:
        return self.given_format or str(self._configured("output", "text"))

    @property
    def verbose(self) -> bool:
        return self.given_verbose or bool(self._configured("verbose", False))

    @property
    def log_format(self) -> LogFormat:
        return self.given_log_format or self._configured("log-format", "text")

    def _configured(self, name: str, default: Any) -> Any:
        return self.configured[name][1].value if name in self.configured else default

    @property
    def output(self) -> Output:
        return JsonOutput() if self.output_format == "json" else TextOutput()

    def end(self, failure: Failure) -> NoReturn:
        """Print the failure and exit."""
        self.output.failure(failure.with_traceback() if self.verbose else failure)
        click.get_current_context().exit(failure.exit_code)


def current() -> Settings:
    """The settings of the current command."""
    # The root's settings: those of the command's own context may be outdated.
    return click.get_current_context().find_root().find_object(Settings) or Settings()


def _set_option(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    # The group and the command both accept the options; the command's value wins.
    if value not in (None, False):
        names = {
            "state_root": "given_root",
            "output": "given_format",
            "verbose": "given_verbose",
            "log_format": "given_log_format",
            "as_given": "as_given",
        }
        root = ctx.find_root()
        root.obj = replace(root.obj or Settings(), **{names[param.name or ""]: value})
        logs.choose(root.obj.log_format)


def configure(ctx: click.Context) -> None:
    """Apply the settings of the environment and the configuration file to commands' options. Raises ConfigError."""
    root = ctx.find_root()
    settings = root.obj or Settings()
    if settings.as_given:
        return
    assert isinstance(root.command, click.Group)
    found = command_settings(root.command)
    root.obj = replace(settings, configured=found)
    logs.choose(root.obj.log_format)
    root.default_map = default_map(found)
    _refresh_defaults(ctx)


def _refresh_defaults(ctx: click.Context) -> Any:
    """Refresh a context's defaults, which it copied from its parent when it was created."""
    if ctx.parent is not None:
        ctx.default_map = (_refresh_defaults(ctx.parent) or {}).get(ctx.info_name, {})
    return ctx.default_map


def _use_config(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    if path is not None and not ctx.resilient_parsing:
        os.environ[CONFIG] = os.path.abspath(path)  # also for the programs and drivers that it starts
        if ctx.parent is not None:
            configure(ctx)


def options() -> list[click.Parameter]:
    """New instances of the options."""
    return [
        click.Option(
            ["--state-root"],
            metavar="PATH|URL",
            type=PlaceType(),
            expose_value=False,
            callback=_set_option,
            help=f"Where jobs keep their state. [env: {STATE_ROOT}; default: {DEFAULT_STATE_ROOT}]",
        ),
        click.Option(
            ["--output"],
            type=click.Choice(["text", "json"]),
            expose_value=False,
            callback=_set_option,
            help="The format of results. [default: text]",
        ),
        click.Option(
            ["-v", "--verbose"], is_flag=True, expose_value=False, callback=_set_option, help="Show tracebacks of errors."
        ),
        click.Option(
            ["--log-format"],
            type=click.Choice(["text", "json"]),
            expose_value=False,
            callback=_set_option,
            help="The format of jobs' logs. [default: text]",
        ),
        click.Option(
            ["--config"],
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False),
            expose_value=False,
            callback=_use_config,
            is_eager=True,
            help=f"The configuration. [env: {CONFIG}; default: ./{FILE}, else ~/.config/forkpoint/config.toml]",
        ),
        click.Option(["--as-given"], is_flag=True, expose_value=False, callback=_set_option, hidden=True),
    ]


class Command(click.Command):
    """A command with the common options after its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(options())
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])
