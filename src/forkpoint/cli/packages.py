"""Commands of other packages: entry points of the group ``forkpoint.commands``, named like the commands. Calling a command loads
it; its one-line help comes from the function's docstring, which is read without loading it."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import click

from forkpoint.extras import not_installed
from forkpoint.lazy import docstring

PACKAGES = {"import-spark-checkpoint": "forkpoint_spark_checkpoints"}
"""The commands of forkpoint's own packages, so that errors can name the extra of a missing package."""


def short_helps() -> dict[str, str]:
    """The one-line help of the installed packages' commands, by name."""
    return {name: short_help(docstring(entry.module, entry.attr)) for name, entry in _installed().items()}


def short_help(text: str) -> str:
    """The first sentence of a command's help, as click shortens it."""
    return click.Command(None, help=text).get_short_help_str(limit=1_000)


def names() -> list[str]:
    """The names of the installed packages' commands."""
    return list(_installed())


def load(name: str) -> click.Command | None:
    """The command of this name, if any. Raises NotInstalled if its package is missing."""
    entry = _installed().get(name)
    if entry is None and name in PACKAGES:
        raise not_installed(PACKAGES[name], f"`forkpoint {name}`")
    command: click.Command | None = None if entry is None else entry.load()
    return command


def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="forkpoint.commands")}
