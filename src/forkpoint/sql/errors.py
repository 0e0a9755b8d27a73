"""Errors of SQL text, with the line, the column and a mark below them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from forkpoint.errors import ConfigError
from forkpoint.graph.secrets import is_secret

_OPTION = re.compile(r"('([^']+)'\s*=\s*')((?:[^']|'')*)")


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
    return _OPTION.sub(lambda found: found[0] if is_public(found[2]) else found[1] + "*" * len(found[3]), text)


def is_public(option: str) -> bool:
    """Whether the value of a table's option may be shown."""
    return option == "properties.bootstrap.servers" or not (is_secret(option) or option.startswith("properties."))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A suggestion for an unknown name, or all known names."""
    names = list(known)
    lower = {each.lower(): each for each in names}
    close = get_close_matches(name.lower(), lower, 1)
    if close:
        return f"did you mean {lower[close[0]]!r}?"
    return f"there are {', '.join(names[:20])}" if names else "there are none"
