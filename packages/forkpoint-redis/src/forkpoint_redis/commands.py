"""Converts the commands that a user's function returns to staged rows, which are lists of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from forkpoint.connectors.rows import StagedRow
from forkpoint.contract.sink import SinkBatch
from forkpoint.errors import ConfigError

Argument: TypeAlias = str | bytes | int | float
Command: TypeAlias = Sequence[Argument]

MAX_ARGUMENTS = 5_000  # Lua passes fewer than 8,000
_REFUSED = {
    "SELECT": "give the database in the URL",
    "SWAPDB": "it would move the sink's ledger",
    "FLUSHDB": "it would delete the sink's ledger",
    "FLUSHALL": "it would delete the sink's ledger",
}


class CommandEncoder:
    """Converts elements to staged rows. ``function``: the user's function."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, batch: SinkBatch[Any]) -> Iterator[StagedRow]:
        for element in batch.values:
            for command in commands_of(self._function(element)):
                yield encode(command)


def commands_of(returned: Any) -> Sequence[Command]:
    """The commands in a function's result: a command, a list of commands, or None."""
    if returned is None:
        return ()
    if not isinstance(returned, tuple | list):
        raise ConfigError(
            f"RedisSink: the function returned {returned!r}; it must return a command, such as ('SET', key, value), a list of "
            "commands, or None"
        )
    return returned if not returned or isinstance(returned[0], tuple | list) else (returned,)


def encode(command: Any) -> list[bytes]:
    if not isinstance(command, tuple | list) or not command or not isinstance(command[0], str) or not command[0].strip():
        raise ConfigError(f"RedisSink: {command!r} is not a command; a command is a tuple that begins with its name")
    if len(command) > MAX_ARGUMENTS:
        raise ConfigError(
            f"RedisSink: a {command[0]} with {len(command) - 1} arguments; at most {MAX_ARGUMENTS - 1} are possible: use several"
        )
    name = command[0].upper()
    if name in _REFUSED:
        raise ConfigError(f"RedisSink: {name} is not possible: {_REFUSED[name]}")
    return [name.encode(), *(_argument(name, value) for value in command[1:])]


def _argument(name: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value).encode() if type(value) in (int, float) else str(value).encode()
    raise ConfigError(
        f"RedisSink: an argument of {name} is {value!r}, a {type(value).__qualname__}; make it str, bytes, int or float"
    )
