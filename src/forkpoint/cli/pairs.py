"""Options of the form NAME=VALUE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import click

Pairs: TypeAlias = Mapping[str, str]


def split_pair(value: str, param: click.Parameter) -> tuple[str, str]:
    left, equals, right = value.partition("=")
    if not (left and equals and right):
        raise click.BadParameter(f"{value!r} is not of the form {param.metavar}")
    return left, right


def pairs(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> Pairs:
    found: dict[str, str] = {}
    for value in values:
        left, right = split_pair(value, param)
        if left in found:
            raise click.BadParameter(f"{left!r} is given twice")
        found[left] = right
    return found


def pairs_option(option: str, name: str, metavar: str, text: str) -> Callable[[Any], Any]:
    """A repeatable option whose values become a dict; each NAME may be given once."""
    return click.option(option, name, metavar=metavar, multiple=True, callback=pairs, help=text)
