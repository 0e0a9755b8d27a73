"""The `config` commands, and `completion`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
from rich.text import Text

from forkpoint.api.configuration import default_of
from forkpoint.api.launch import SETTABLE, Setting, job_settings, variable
from forkpoint.cli.completion import script
from forkpoint.cli.defaults import command_settings, general_options, known_options
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current, options
from forkpoint.config_file import DEFAULT_STATE_ROOT, JOB, STATE_ROOT_KEY, config_file
from forkpoint.graph.secrets import is_secret
from forkpoint.storage.places import absolute

_HIDDEN = "*****"
_STYLES = {"default": "dim", "file": "cyan", "environment": "yellow", "flag": "green"}


@dataclass(frozen=True)
class _Row:
    name: str
    setting: Setting
    variable: str

    @property
    def shown(self) -> Any:
        """The value, without credentials."""
        value = self.setting.value
        if isinstance(value, Mapping):
            return {key: _HIDDEN if is_secret(key) else each for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [f"{each.partition('=')[0]}={_HIDDEN}" if is_secret(each.partition("=")[0]) else each for each in value]
        return _HIDDEN if value is not None and is_secret(self.name) else value

    @property
    def json(self) -> dict[str, Any]:
        section, _, key = self.name.partition(".") if self.name.startswith(f"{JOB}.") else self.name.rpartition(".")
        return {
            "section": section or None,
            "key": key,
            "value": self.shown,
            "origin": self.setting.origin,
            "place": self.setting.place,
            "variable": self.variable,
        }


@click.group("config", params=options(), context_settings={"help_option_names": ["-h", "--help"]})
def config() -> None:
    """Show the settings of forkpoint.toml, the environment and the command line."""


@config.command("show", cls=Command)
@click.option("-a", "--all", "everything", is_flag=True, help="Also show options of commands without a setting.")
def show(everything: bool) -> None:
    """Show each setting's value and its origin.

    Flags override environment variables, which override the file. A program's own settings override the job settings.
    """
    path = config_file().path
    given = job_settings()
    keys = (*SETTABLE, *(key for key in given if key not in SETTABLE))
    jobs = [_Row(f"{JOB}.{key}", given.get(key, Setting(default_of(key))), variable(key)) for key in keys]
    rows = [*_general(), *jobs, *(row for row in _of_commands() if everything or row.setting.origin != "default")]

    def shown(out: TextOutput) -> None:
        out.line(f"file: {path or 'none'}")
        titles = ["SETTING", "VALUE", "FROM"]
        out.table(titles, [[row.name, _text(row.shown), _origin(row.setting)] for row in rows])

    current().output.result({"file": path, "settings": [row.json for row in rows]}, shown)


def _general() -> list[_Row]:
    """The settings of all commands, with this command's values."""
    root = click.get_current_context().find_root()
    assert isinstance(root.command, click.Group)
    given, now = command_settings(root.command), current()
    flags = {
        STATE_ROOT_KEY: now.given_root,
        "output": now.given_format,
        "verbose": now.given_verbose or None,
        "log-format": now.given_log_format,
    }
    usual = {STATE_ROOT_KEY: absolute(DEFAULT_STATE_ROOT), "output": "text", "verbose": False, "log-format": "text"}
    rows = []
    for option in general_options(root.command):
        setting = given[option.name][1] if option.name in given else Setting(usual[option.key])
        if (flag := flags[option.key]) is not None:
            setting = Setting(flag, "flag", f"--{option.key}")
        if option.key == STATE_ROOT_KEY:
            setting = Setting(now.state_root.place, setting.origin, setting.place)
        rows.append(_Row(option.name, setting, option.variable))
    return rows


def _of_commands() -> list[_Row]:
    root = click.get_current_context().find_root()
    assert isinstance(root.command, click.Group)
    given = command_settings(root.command)
    rows = []
    for option in known_options(root.command):
        usual = option.param.to_info_dict()["default"]
        setting = given[option.name][1] if option.name in given else Setting(usual)
        rows.append(_Row(option.name, setting, option.variable))
    return rows


def _text(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case list() | tuple():
            return ", ".join(map(str, value)) or "-"
        case _:
            return str(value)


def _origin(setting: Setting) -> Text:
    text = setting.origin if setting.place is None else setting.place
    return Text(text, _STYLES[setting.origin])


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, jobs, savepoints, uids and states.

    For bash: eval "$(forkpoint completion bash)" in ~/.bashrc.
    """
    click.echo(script(shell), nl=False)
