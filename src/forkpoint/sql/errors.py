"""Errors of SQL text, with the line, the column and a mark below them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from forkpoint.errors import ConfigError
from forkpoint.graph.secrets import is_secret

_OPTION = re.compile(r"('([^']+)'\s*=\s*')((?:[^']|'')*)")

_PASSWORD = re.compile(r"(?<=:)(?!\w+\})[^:/@\s]+(?=@)")  # of a URL
ENVIRONMENT = re.compile(r"\$\{env:(\w+)\}")
"""A reference to an environment variable, in a table's option."""


class SqlError(ConfigError):
    """A statement is not valid, or needs something that is not supported."""


class Text:
    """A script. ``name``: of its file, for messages."""

    def __init__(self, text: str, name: str = "SQL") -> None:
        self.text, self.name = text, name

    def error(self, at: int, problem: str) -> SqlError:
        """The error for a problem at an offset of the text."""
        at = min(at, max(len(self.text) - 1, 0))
        start = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", start)
        line = without_secrets(self.text[start : len(self.text) if end < 0 else end])
        number, column = self.text.count("\n", 0, at) + 1, at - start + 1
        mark = "".join("\t" if sign == "\t" else " " for sign in line[: at - start])
        return SqlError(f"{self.name}, line {number}, column {column}: {problem}\n  {line}\n  {mark}^")


def without_secrets(text: str) -> str:
    """A text with stars, as many as signs, in place of options that may be secrets."""
    return _OPTION.sub(lambda found: found[1] + public_value(found[2], found[3]), text)


def public_value(option: str, value: str) -> str:
    """The value of an option of a table or job, with stars in place of what may be a secret."""
    if ENVIRONMENT.fullmatch(value):
        return value
    if option != "properties.bootstrap.servers" and (is_secret(option) or option.startswith("properties.")):
        return "*" * len(value)
    return _PASSWORD.sub(lambda found: "*" * len(found[0]), value)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A suggestion for an unknown name, or all known names."""
    names = list(known)
    lower = {each.lower(): each for each in names}
    close = get_close_matches(name.lower(), lower, 1)
    if close:
        return f"did you mean {lower[close[0]]!r}?"
    return f"there are {', '.join(names[:20])}" if names else "there are none"
