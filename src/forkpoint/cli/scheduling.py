"""The options for scheduled savepoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from forkpoint.api.configuration import parse_duration_ms
from forkpoint.errors import ConfigError
from forkpoint.graph.options import SavepointSchedule


class DurationType(click.ParamType):  # type: ignore[type-arg]
    """A duration such as 30s, 15min, 1h or 7d, in ms."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            found = value if isinstance(value, int) else parse_duration_ms("the time", value)
        except ConfigError:
            found = 0
        if found < 1:
            self.fail(f"{value!r} is not a duration; write it as 30s, 15min, 1h or 7d", param, ctx)
        return found


def schedule_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--savepoint-keep-for", "keep_for_ms", metavar="TIME", type=DurationType(),
            help="Keep scheduled savepoints for this long (7d).",
        ),
        click.option(
            "--savepoint-keep-last", "keep_last", metavar="N", type=click.IntRange(1),
            help="Keep the newest N scheduled savepoints.",
        ),
        click.option(
            "--savepoint-every", "every_ms", metavar="TIME", type=DurationType(),
            help="Take savepoints at this interval (30s, 15min, 1h); overrides the program's schedule.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def schedule_of(every_ms: int | None, keep_last: int | None, keep_for_ms: int | None) -> SavepointSchedule | None:
    if every_ms is None:
        if keep_last is not None or keep_for_ms is not None:
            raise click.UsageError("--savepoint-keep-last and --savepoint-keep-for need --savepoint-every")
        return None
    return SavepointSchedule(every_ms, keep_last=keep_last, keep_for_ms=keep_for_ms)
