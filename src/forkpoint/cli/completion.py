"""The `completion` command."""

from __future__ import annotations

import click

from forkpoint.cli.completing import script
from forkpoint.cli.settings import Command


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, jobs, savepoints, uids and states.

    For bash: eval "$(forkpoint completion bash)" in ~/.bashrc.
    """
    click.echo(script(shell), nl=False)
