"""What a shell calls for completions, in place of the commands, whose imports take longer than a keystroke may.

It completes from a copy of the tree of commands that has only their names and parameters, kept in the user's cache.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Mapping
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
_SECONDS = 2.0  # for a state root that is far away
_FILES = ("app", "file", "path", "filename")  # names of click's path types, and ours

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


class _Joined(ShellComplete):
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
    """Quotes names, and works on the line, as bash's own words end at "=" and ":"."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.fsencode(os.environ["COMP_LINE"])[: int(os.environ["COMP_POINT"])].decode(errors="replace")
        words = split_arg_string(line)[1:]
        return (words[:-1], words[-1]) if words and not line[-1].isspace() else (words, "")

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        given = incomplete.partition("=")[2] if incomplete.startswith("-") and "=" in incomplete else incomplete
        breaks = [given.rfind(each) for each in ":=" if each in os.environ.get("COMP_BREAKS", ":=")]
        start = max(breaks, default=-1) + 1
        return [CompletionItem(i.value[start:], i.type, i.help) for i in super().get_completions(args, incomplete)]


class Zsh(_Joined, ZshComplete):
    pass


class Fish(_Joined, FishComplete):
    source_template = FishComplete.source_template.replace('string split ","', 'string split -m 1 ","')


for _shell in (Bash, Zsh, Fish):
    add_completion_class(_shell)


def main() -> None:
    """Print the completions that the shell asks for. Silent if anything fails: the user is typing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    late = threading.Timer(_SECONDS, os._exit, [0])
    late.daemon = True
    try:
        tree = _tree()  # however long it takes: it is kept for the next time
        late.start()
        shell_complete(tree, {}, PROGRAM, VARIABLE, os.environ[VARIABLE])
    except BaseException:
        os._exit(0)
    late.cancel()


def script(shell: str) -> str:
    """The script that teaches a shell to complete; keeps the tree for its first completion."""
    classes: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}
    return classes[shell](_tree(), {}, PROGRAM, VARIABLE).source()


def _tree() -> click.Command:
    kept = _kept()
    try:
        return _command(json.loads(kept.read_text()))
    except (OSError, ValueError):
        pass
    from forkpoint.cli.command import main as whole

    told = json.dumps(whole.to_info_dict(click.Context(whole, info_name=PROGRAM)), default=repr)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as made:
            made.write(told)
        os.replace(made.name, kept)
    except OSError:
        pass
    return _command(json.loads(told))


def _kept() -> Path:
    """The file of the tree, of this installation as it is."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / PROGRAM / "commands"
    installed = distribution(PROGRAM)
    site = Path(str(installed.locate_file("")))  # changes when a package with commands is installed beside forkpoint
    changed = max(path.stat().st_mtime_ns for path in (site, *Path(__file__).parent.rglob("*.py")))
    return home / f"{installed.version}-{click.__version__}-{changed}.json"


def _command(told: Mapping[str, Any]) -> click.Command:
    settings = {"help_option_names": ["-h", "--help"], "ignore_unknown_options": True}
    params = [_param(each) for each in told["params"] if each["name"] != "_click_default_help"]
    shown: dict[str, Any] = {"params": params, "help": told["help"], "short_help": told["short_help"], "hidden": told["hidden"]}
    if "commands" not in told:
        return click.Command(told["name"], context_settings=settings, **shown)
    commands = {name: _command(each) for name, each in told["commands"].items()}
    return click.Group(told["name"], commands, context_settings=settings, **shown)


def _param(told: Mapping[str, Any]) -> click.Parameter:
    common: dict[str, Any] = {"type": _type(told["type"]), "nargs": told["nargs"], "required": False}
    if told["param_type_name"] == "argument":
        return click.Argument([told["name"]], **common)
    declared = [told["name"], *told["opts"], *told["secondary_opts"]]
    if told["is_flag"]:
        return click.Option(declared, is_flag=True, help=told["help"], hidden=told["hidden"])
    return click.Option(declared, multiple=told["multiple"], help=told["help"], hidden=told["hidden"], **common)


def _type(told: Mapping[str, Any]) -> Any:
    name = told["name"]
    if "choices" in told:
        return click.Choice(told["choices"])
    if name == PlaceType.name:
        return PlaceType()
    if name in _FILES:
        return click.Path()
    return TYPES.get(name, click.UNPROCESSED)
