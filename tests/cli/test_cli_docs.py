"""docs/cli.md and the command line say the same."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from forkpoint.cli import main
from forkpoint.cli.command import short_helps

DOCS = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
HELPS = short_helps()


@pytest.mark.parametrize("name", sorted(HELPS))
def test_every_command_and_option_is_documented(name):
    command = main.get_command(click.Context(main), name)
    assert (command.name, command.get_short_help_str(1_000)) == (name, HELPS[name])
    _, _, behind = DOCS.partition(f"\n### {name}")
    section = behind.partition("\n## ")[0].partition("\n### ")[0] + DOCS.partition("## Commands")[0]
    assert behind
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.help or param.metavar, param.name
            for option in (*param.opts, *param.secondary_opts):
                assert re.search(rf"(?<![\w-]){option}(?![\w-])", section), f"{name} {option}"


def test_the_help_lists_the_commands_of_packages_without_loading_them():
    program = (
        "import sys; from forkpoint.cli import main; main(['--help'], standalone_mode=False);"
        "print([name for name in sys.modules if name.startswith('forkpoint_')])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "['forkpoint_spark_checkpoints']"
    listed = re.findall(r"^  ([a-z][a-z-]+)  ", shown.partition("Commands:")[2], re.MULTILINE)
    assert listed == sorted(HELPS)


def test_version():
    from importlib.metadata import version

    from click.testing import CliRunner

    result = CliRunner().invoke(main, ["--version"])
    assert result.output == f"forkpoint {version('forkpoint')}\n"
