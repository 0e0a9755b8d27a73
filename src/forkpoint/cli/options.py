"""Options shared by several commands, and their types: NAME=VALUE, durations, savepoint schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import click

from forkpoint.cli.names import ANY_UID, NameType
from forkpoint.errors import ConfigError
from forkpoint.graph.options import Autoscale, SavepointSchedule
from forkpoint.wording import parse_duration_ms

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


def pairs_option(option: str, name: str, metavar: str, text: str, left: NameType | None = None) -> Callable[[Any], Any]:
    """A repeatable option whose values become a dict; a NAME may be given once. ``left`` completes the NAME."""
    return click.option(option, name, metavar=metavar, type=left, multiple=True, callback=pairs, help=text)


map_option = click.option(
    "--map",
    "renames",
    metavar="OLD=NEW",
    type=ANY_UID,
    multiple=True,
    callback=lambda ctx, param, given: dict(split_pair(value, param) for value in given),
    help="Restore the state of uid OLD to uid NEW; repeatable.",
)


def _uids(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    found = [split_pair(value, param) for value in values]
    for uid, what in found:
        if what != "empty":
            raise click.BadParameter(f"{what!r} cannot be accepted for {uid!r}; write {uid}=empty")
    return tuple(uid for uid, _ in found)


accept_option = click.option(
    "--accept",
    "accept_empty",
    metavar="UID=empty",
    type=ANY_UID,
    multiple=True,
    callback=_uids,
    help="If the saved state of operator UID does not fit, start it empty; repeatable. What was written stays as it is.",
)
pyflink_option = click.option("--pyflink", is_flag=True, help="Provide forkpoint as pyflink to a program that imports it.")
allow_non_restored_option = click.option(
    "-n", "--allow-non-restored-state", is_flag=True, help="Drop saved state and fields that the program no longer has."
)


class DurationType(click.ParamType):  # type: ignore[type-arg]
    """A duration such as 30s, 15min, 1h or 7d, converted to ms. ``least_ms``: the minimum."""

    name = "duration"

    def __init__(self, least_ms: int = 1) -> None:
        self._least_ms = least_ms

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            found = value if isinstance(value, int) else parse_duration_ms("the time", value)
        except ConfigError:
            number = value.strip()
            if number.replace(".", "", 1).isdecimal():
                self.fail(f"{value!r} has no unit; write {number}s, {number}min, {number}h or {number}d", param, ctx)
            self.fail(f"{value!r} is not a duration; write it as 30s, 15min, 1h or 7d", param, ctx)
        if found < self._least_ms:
            self.fail(f"{value!r} is too short; the shortest time is {self._least_ms} ms", param, ctx)
        return found


class AutoscaleType(click.ParamType):  # type: ignore[type-arg]
    """The bounds of autoscaling, MIN:MAX."""

    name = "autoscale"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Autoscale:
        if isinstance(value, Autoscale):
            return value
        low, colon, high = value.partition(":")
        if not (colon and low.isdecimal() and high.isdecimal()):
            self.fail(f"{value!r} is not of the form MIN:MAX, such as 2:16", param, ctx)
        try:
            return Autoscale(int(low), int(high))
        except ConfigError as error:
            self.fail(str(error), param, ctx)


autoscale_option = click.option(
    "--autoscale",
    metavar="MIN:MAX",
    type=AutoscaleType(),
    help="Let the job change its parallelism within these bounds while it runs.",
)


def schedule_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--savepoint-keep-for",
            "keep_for_ms",
            metavar="TIME",
            type=DurationType(),
            help="Keep scheduled savepoints for this long (7d).",
        ),
        click.option(
            "--savepoint-keep-last",
            "keep_last",
            metavar="N",
            type=click.IntRange(1),
            help="Keep the newest N scheduled savepoints.",
        ),
        click.option(
            "--savepoint-every",
            "every_ms",
            metavar="TIME",
            type=DurationType(),
            help="Take savepoints at this interval (30s, 15min, 1h); overrides the program's schedule.",
        ),
    ):
        command = option(command)
    return command


def schedule_of(every_ms: int | None, keep_last: int | None, keep_for_ms: int | None) -> SavepointSchedule | None:
    if every_ms is None:
        if keep_last is not None or keep_for_ms is not None:
            raise click.UsageError("--savepoint-keep-last and --savepoint-keep-for need --savepoint-every")
        return None
    return SavepointSchedule(every_ms, keep_last=keep_last, keep_for_ms=keep_for_ms)
