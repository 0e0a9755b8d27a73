"""Finds and reads forkpoint.toml, with the line of each key, and determines the state root."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from forkpoint.errors import ConfigError

CONFIG = "FORKPOINT_CONFIG"
STATE_ROOT = "FORKPOINT_STATE_ROOT"
ENGINE = "FORKPOINT_ENGINE"
VARIABLES = (
    CONFIG,
    STATE_ROOT,
    ENGINE,
    "FORKPOINT_OUTPUT",
    "FORKPOINT_VERBOSE",
    "FORKPOINT_LOG_FORMAT",
    "FORKPOINT_SERVER_TOKEN",
    "FORKPOINT_SERVER_READ_TOKEN",
)
"""The environment variables that forkpoint reads, except for options of commands and jobs (which have two underscores)."""
_OF_KUBERNETES = re.compile(r"_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)\Z")
DEFAULT_STATE_ROOT = "./.forkpoint"
FILE = "forkpoint.toml"
STATE_ROOT_KEY = "state-root"
JOB = "job"
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[^="'#])+?)\s*=""")


@dataclass(frozen=True)
class ConfigFile:
    """``path``: None if there is no file. ``lines``: the line of each key, by full name, as far as it was found."""

    path: str | None = None
    content: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    def location(self, name: str) -> str:
        """The file and the line of a key: "forkpoint.toml, line 3"."""
        line = self.lines.get(name)
        return f"{self.path}" if line is None else f"{self.path}, line {line}"

    @property
    def state_root(self) -> str | None:
        """The state root; a path is relative to the file's directory. Raises ConfigError if it is not a string."""
        given = self.content.get(STATE_ROOT_KEY)
        if given is None:
            return None
        if not isinstance(given, str) or not given:
            raise ConfigError(f"{self.location(STATE_ROOT_KEY)}: {STATE_ROOT_KEY} = {given!r}; give a path or URL, in quotes")
        if "://" in given or given.startswith("file:"):
            return given
        return os.path.join(os.path.dirname(self.path or ""), os.path.expanduser(given))

    @property
    def job(self) -> dict[str, Any]:
        """The job options, by Flink's keys; nested TOML tables are flattened."""
        given = self.content.get(JOB, {})
        if not isinstance(given, Mapping):
            raise ConfigError(f"{self.location(JOB)}: {JOB} = {given!r}; write the job options below [{JOB}]")
        return dict(_flat(given))


def config_file() -> ConfigFile:
    """The configuration of this process: the file in FORKPOINT_CONFIG (no file if empty), else forkpoint.toml in the working
    directory, else config.toml in ~/.config/forkpoint. Raises ConfigError if the file is missing or not TOML."""
    path = _path()
    if path is None:
        return ConfigFile()
    try:
        return _loaded(path, os.stat(path).st_mtime_ns)
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror}; correct --config or {CONFIG}") from error


def state_root() -> str | None:
    """The state root from the environment, else from the file; None if neither sets it."""
    return os.environ.get(STATE_ROOT) or config_file().state_root


def check_variables(environment: Mapping[str, str]) -> None:
    """Raise ConfigError for an environment variable whose name looks like a misspelt setting."""
    for name, value in environment.items():
        if name.startswith("FORKPOINT") and value and name not in VARIABLES and "__" not in name:
            near = difflib.get_close_matches(name, VARIABLES, 1, cutoff=0.88)
            if near and not _OF_KUBERNETES.search(name):
                raise ConfigError(f"the environment variable {name} sets nothing; did you mean {near[0]}?")


def _path() -> str | None:
    if (given := os.environ.get(CONFIG)) is not None:
        return os.path.abspath(os.path.expanduser(given)) if given else None
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    candidates = (os.path.abspath(FILE), os.path.join(home, "forkpoint", "config.toml"))
    return next(filter(os.path.isfile, candidates), None)


@lru_cache(maxsize=8)
def _loaded(path: str, mtime_ns: int) -> ConfigFile:
    with open(path, "rb") as file:
        data = file.read()
    try:
        text = data.decode()
        return ConfigFile(path, tomllib.loads(text), _lines(text))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}; correct the file") from None


def _lines(text: str) -> dict[str, int]:
    """The line numbers of keys, found by a line-by-line scan; tomllib does not report them."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            section = _plain(header[1])
            found.setdefault(section, number)
        elif key := _KEY.match(line):
            found.setdefault(f"{section}.{_plain(key[1])}" if section else _plain(key[1]), number)
    return found


def _plain(key: str) -> str:
    return re.sub(r"""["']""", "", re.sub(r"\s*\.\s*", ".", key.strip()))


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in table.items():
        name = f"{prefix}{key}"
        # The job's parameters form a table of their own.
        inner = isinstance(value, Mapping) and name != "pipeline.global-job-parameters"
        pairs += _flat(value, f"{name}.") if inner else [(name, value)]
    return pairs
