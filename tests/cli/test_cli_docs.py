"""docs/cli.md and the command line say the same."""

import re
from pathlib import Path

import click
import pytest

from forkpoint.cli import main
from forkpoint.cli.command import COMMANDS

DOCS = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_is_documented(name):
    command = main.get_command(click.Context(main), name)
    assert (command.name, command.get_short_help_str(1_000)) == (name, COMMANDS[name][1])
    _, _, behind = DOCS.partition(f"\n### {name}")
    section = behind.partition("\n## ")[0].partition("\n### ")[0] + DOCS.partition("## Commands")[0]
    assert behind
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.help or param.metavar, param.name
            for option in (*param.opts, *param.secondary_opts):
                assert re.search(rf"(?<![\w-]){option}(?![\w-])", section), f"{name} {option}"


def test_version():
    from importlib.metadata import version

    from click.testing import CliRunner

    result = CliRunner().invoke(main, ["--version"])
    assert result.output == f"forkpoint {version('forkpoint')}\n"
