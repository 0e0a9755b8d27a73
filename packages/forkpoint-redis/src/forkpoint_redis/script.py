"""The Lua script that applies commands once.

Redis runs a script atomically: other clients, and the append-only file, never see the ledger without the commands. But Redis
does not roll back a failed script. So the script writes the ledger first: if the server does not accept writes, this fails
without any effect. If a later command fails, the script records its progress and ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from forkpoint.connectors.ledger import REDIS_HASH

SCRIPT = """
local entry, epoch, from, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local noted_epoch, noted = 0, 0
local text = redis.call('HGET', KEYS[1], entry)
if text then
  noted_epoch, noted = string.match(text, '^(%d+) (%d+)$')
  noted_epoch, noted = tonumber(noted_epoch), tonumber(noted)
end
local follows
if noted_epoch < epoch then follows = from == 0 else follows = noted_epoch == epoch and noted == from end
if not follows then return {noted_epoch, noted} end
redis.call('HSET', KEYS[1], entry, string.format('%d %d', epoch, from + count))
local at = 5
for done = 0, count - 1 do
  local size = tonumber(ARGV[at])
  local answer = redis.pcall(unpack(ARGV, at + 1, at + size))
  if type(answer) == 'table' and answer['err'] then
    redis.call('HSET', KEYS[1], entry, string.format('%d %d', epoch, from + done))
    return {epoch, from + done, answer['err']}
  end
  at = at + size + 1
end
return {epoch, from + count}
"""


@dataclass(frozen=True, order=True)
class Progress:
    """The applied output of a group: ``done`` commands of an epoch, and all commands of earlier epochs."""

    epoch: int = 0
    done: int = 0


class Ledger:
    """An entry of the ledger and the script that advances it."""

    def __init__(self, client: Any, entry: str) -> None:
        self._client = client
        self._entry = entry

    @cached_property
    def _script(self) -> Any:
        return self._client.register_script(SCRIPT)

    def progress(self) -> Progress:
        text = self._client.hget(REDIS_HASH, self._entry)
        return Progress() if text is None else Progress(*map(int, text.split()))

    def apply(self, start: Progress, commands: Sequence[Sequence[bytes | None]]) -> tuple[Progress, str | None]:
        """Apply commands if the ledger is at ``start``, or at an earlier epoch and ``start`` begins an epoch. Returns the
        resulting progress and the error of the next command if it failed."""
        arguments: list[Any] = [self._entry, start.epoch, start.done, len(commands)]
        for command in commands:
            arguments.append(len(command))
            arguments += command
        epoch, done, *error = self._script(keys=[REDIS_HASH], args=arguments)
        return Progress(epoch, done), error[0].decode(errors="replace") if error else None
