"""Completes command lines for shells, without loading the commands: their imports are too slow for a keystroke.

Reads names and parameters from a copy of the command tree in the user's cache.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    shell_complete,
    split_arg_string,
)

from forkpoint.cli.names import TYPES, PlaceType

PROGRAM = "forkpoint"
VARIABLE = "_FORKPOINT_COMPLETE"
_SECONDS = 2.0  # time limit, for remote state roots
_FILES = ("app", "file", "path", "filename")  # names of click's path types and forkpoint's

_BASH = """\
%(complete_func)s() {
    local type value
    COMPREPLY=()
    while IFS=',' read -r type value; do
        case "$type" in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$(printf '%%q' "$value")") ;;
        esac
    done < <(COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" COMP_BREAKS="$COMP_WORDBREAKS" \
%(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _JoinedOption(ShellComplete):
    """Completes ``--option=value`` as one word."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        option, equals, _ = incomplete.partition("=")
        found = super().get_completions(args, incomplete)
        if not (equals and option.startswith("-")):
            return found
        return [
            item if item.type != "plain" else CompletionItem(f"{option}={item.value}", item.type, item.help) for item in found
        ]


class Bash(BashComplete):
    """Quotes names and splits the line itself, because bash's words end at "=" and ":"."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.fsencode(os.environ["COMP_LINE"])[: int(os.environ["COMP_POINT"])].decode(errors="replace")
        words = split_arg_string(line)[1:]
        return (words[:-1], words[-1]) if words and not line[-1].isspace() else (words, "")

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        given = incomplete.partition("=")[2] if incomplete.startswith("-") and "=" in incomplete else incomplete
        breaks = [given.rfind(char) for char in ":=" if char in os.environ.get("COMP_BREAKS", ":=")]
        start = max(breaks, default=-1) + 1
        return [CompletionItem(i.value[start:], i.type, i.help) for i in super().get_completions(args, incomplete)]


class Zsh(_JoinedOption, ZshComplete):
    pass


class Fish(_JoinedOption, FishComplete):
    source_template = FishComplete.source_template.replace('string split ","', 'string split -m 1 ","')


for _shell in (Bash, Zsh, Fish):
    add_completion_class(_shell)


def main() -> None:
    """Print the completions that the shell requests. Errors are silent, because the user is typing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    timer = threading.Timer(_SECONDS, os._exit, [0])
    timer.daemon = True
    try:
        tree = _command_tree()  # not subject to the time limit, because it is cached for the next time
        timer.start()
        shell_complete(tree, {}, PROGRAM, VARIABLE, os.environ[VARIABLE])
    except BaseException:
        os._exit(0)
    timer.cancel()


def script(shell: str) -> str:
    """The completion script of a shell. Also caches the tree for the first completion."""
    classes: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}
    return classes[shell](_command_tree(), {}, PROGRAM, VARIABLE).source()


def _command_tree() -> click.Command:
    cache = _cache_file()
    with suppress(OSError, ValueError):
        return _command(json.loads(cache.read_text()))
    from forkpoint.cli.command import main as group

    tree = json.dumps(group.to_info_dict(click.Context(group, info_name=PROGRAM)), default=repr)
    with suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=cache.parent, delete=False) as file:
            file.write(tree)
        os.replace(file.name, cache)
    return _command(json.loads(tree))


def _cache_file() -> Path:
    """The path of this installation's cached tree, which depends on its version and modification time."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / PROGRAM / "commands"
    installed = distribution(PROGRAM)
    site = Path(str(installed.locate_file("")))  # changes when a package with commands is installed
    changed = max(path.stat().st_mtime_ns for path in (site, *Path(__file__).parent.rglob("*.py")))
    return home / f"{installed.version}-{click.__version__}-{changed}.json"


def _command(info: Mapping[str, Any]) -> click.Command:
    settings = {"help_option_names": ["-h", "--help"], "ignore_unknown_options": True}
    params = [_param(param) for param in info["params"] if param["name"] != "_click_default_help"]
    shown: dict[str, Any] = {"params": params, "help": info["help"], "short_help": info["short_help"], "hidden": info["hidden"]}
    if "commands" not in info:
        return click.Command(info["name"], context_settings=settings, **shown)
    commands = {name: _command(command) for name, command in info["commands"].items()}
    return click.Group(info["name"], commands, context_settings=settings, **shown)


def _param(info: Mapping[str, Any]) -> click.Parameter:
    common: dict[str, Any] = {"type": _type(info["type"]), "nargs": info["nargs"], "required": False}
    if info["param_type_name"] == "argument":
        return click.Argument([info["name"]], **common)
    declared = [info["name"], *info["opts"], *info["secondary_opts"]]
    if info["is_flag"]:
        return click.Option(declared, is_flag=True, help=info["help"], hidden=info["hidden"])
    return click.Option(declared, multiple=info["multiple"], help=info["help"], hidden=info["hidden"], **common)


def _type(info: Mapping[str, Any]) -> Any:
    name = info["name"]
    if "choices" in info:
        return click.Choice(info["choices"])
    if name == PlaceType.name:
        return PlaceType()
    if name in _FILES:
        return click.Path()
    return TYPES.get(name, click.UNPROCESSED)
