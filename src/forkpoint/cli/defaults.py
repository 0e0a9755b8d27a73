"""Defaults of commands' options from forkpoint.toml and the environment. Flags override them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click

from forkpoint.api.launch import Setting
from forkpoint.config_file import JOB, STATE_ROOT_KEY, ConfigFile, check_variables, config_file
from forkpoint.errors import ConfigError

GENERAL = (STATE_ROOT_KEY, "output", "verbose", "log-format")
_COMMON = {"state_root", "output", "verbose", "log_format", "config", "version", "help", "as_given"}  # of every command


@dataclass(frozen=True)
class Known:
    """A command's option. ``section``: the command's full name, such as "state.get"; "" for the options of all commands."""

    section: str
    key: str
    command: click.Command
    param: click.Option

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}" if self.section else self.key

    @property
    def variable(self) -> str:
        section = f"{_upper(self.section)}__" if self.section else ""
        return f"FORKPOINT_{section}{_upper(self.key)}"


def _upper(name: str) -> str:
    return name.upper().replace("-", "_").replace(".", "_")


def commands_of(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """A group's commands by name. Loads them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command


def known_options(group: click.Group, prefix: str = "") -> Iterator[Known]:
    """The options of all commands below a group that a file or the environment can set."""
    for name, command in commands_of(group):
        section = f"{prefix}{name}"
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden and param.name not in _COMMON:
                yield Known(section, max(param.opts, key=len).lstrip("-"), command, param)
        if isinstance(command, click.Group):
            yield from known_options(command, f"{section}.")


def general_options(group: click.Group) -> list[Known]:
    named = {param.name: param for param in group.params if isinstance(param, click.Option)}
    return [Known("", key, group, named[key.replace("-", "_")]) for key in GENERAL]


def command_settings(group: click.Group) -> dict[str, tuple[Known, Setting]]:
    """The options set by the environment or the file, by full name. Raises ConfigError for errors in either."""
    check_variables(os.environ)
    file = config_file()
    known = {each.name: each for each in general_options(group)}
    if file.content.keys() - known.keys() - {JOB} or any(map(_sets_option, os.environ)):
        known |= {each.name: each for each in known_options(group)}  # loads all commands
    found: dict[str, tuple[Known, Setting]] = {}
    for name, value in _flatten(group, file.content, ""):
        if name not in known:
            raise ConfigError(_unknown_message(file, name, known))
        found[name] = (known[name], Setting(_convert(known[name], value, file.location(name)), "file", file.location(name)))
    found |= dict(_environment_settings(known))
    return found


def _environment_settings(known: Mapping[str, Known]) -> Iterator[tuple[str, tuple[Known, Setting]]]:
    variables = {each.variable: each for each in known.values()}
    for variable, text in os.environ.items():
        option = variables.get(variable)
        if option is not None and text:
            value: Any = text
            if option.param.is_flag:
                value = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}.get(text.lower(), text)
            elif option.param.multiple:
                value = text.split()
            yield option.name, (option, Setting(_convert(option, value, variable), "environment", variable))
        elif option is None and text and _sets_option(variable):
            near = difflib.get_close_matches(variable, variables, 1)
            hint = f"did you mean {near[0]}?" if near else "`forkpoint config show -a` lists all"
            raise ConfigError(f"the environment variable {variable} sets no option; {hint}")


def _sets_option(variable: str) -> bool:
    """Whether a variable sets a command's option. Kubernetes creates others, such as FORKPOINT_SERVER_PORT."""
    return variable.startswith("FORKPOINT_") and "__" in variable and not variable.startswith(f"FORKPOINT_{JOB.upper()}__")


def default_map(settings: Mapping[str, tuple[Known, Setting]]) -> dict[str, Any]:
    """The defaults of commands' options in click's form: by command and parameter."""
    found: dict[str, Any] = {}
    for option, setting in settings.values():
        if option.section:
            inner = found
            for name in option.section.split("."):
                inner = inner.setdefault(name, {})
            inner[str(option.param.name)] = setting.value
    return found


def _flatten(command: click.Command, table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """A table's keys and values. Nested tables belong to commands."""
    for key, value in table.items():
        if prefix or key != JOB:
            inner = command.get_command(click.Context(command), key) if isinstance(command, click.Group) else None
            if isinstance(value, Mapping) and inner is not None:
                yield from _flatten(inner, value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", value


def _unknown_message(file: ConfigFile, name: str, known: Mapping[str, Known]) -> str:
    sections = {each.section for each in known.values() if each.section} | {JOB}
    is_section = isinstance(file.content.get(name), Mapping)
    near = difflib.get_close_matches(name, sorted(sections if is_section else known), 1)
    hint = f"did you mean {near[0]!r}?" if near else "`forkpoint config show -a` lists all settings"
    return f"{file.location(name)}: there is no {'section' if is_section else 'setting'} {name!r}; {hint}"


def _convert(option: Known, value: Any, location: str) -> Any:
    """Converts a value to the option's type. Raises a ConfigError with the key, the value and the remedy."""
    param = option.param
    wrong = None
    if param.is_flag and not isinstance(value, bool):
        wrong = "write true or false"
    elif param.multiple and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        wrong = 'write a list of texts, such as ["a", "b"]'
    elif not param.is_flag and not param.multiple and (isinstance(value, bool) or not isinstance(value, str | int | float)):
        wrong = "write a text or a number"
    if wrong is not None:
        raise ConfigError(f"{location}: {option.name} = {value!r}; {wrong}")
    given = value if param.is_flag or param.multiple else str(value)
    if option.section:
        try:
            param.process_value(click.Context(option.command, info_name=option.section), given)
        except click.UsageError as error:
            raise ConfigError(f"{location}: {option.name} = {value!r}; {error.message.rstrip('.')}. Correct it there") from None
    elif isinstance(param.type, click.Choice) and given not in param.type.choices:
        raise ConfigError(f"{location}: {option.name} = {value!r}; write one of {', '.join(map(repr, param.type.choices))}")
    return given
