"""RedisSink: applies the commands of a stream to Redis, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forkpoint.connectors.rows import RowsWriter, StagedRow
from forkpoint.contract.sink import Committer, CommitterContext, CommittingSink, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.errors import ConfigError
from forkpoint.types.variables import T_contra
from forkpoint_redis.client import RedisClient, raising_errors
from forkpoint_redis.commands import Command, CommandEncoder
from forkpoint_redis.committer import RedisCommitter


class RedisSink(CommittingSink[T_contra]):
    """Applies commands to Redis, exactly once.

    ``command``: converts an element to a command, such as ``("SET", key, value)`` or ``("XADD", stream, "*", field, value)``, to
    a list of commands, or to None for no command. ``url``: ``redis://user:password@host:port/database``, ``rediss://…`` or
    ``unix://…``. ``options``: of redis-py's client, such as ``ssl_ca_certs``. ``replicas``: the number of replicas that must
    receive an epoch before the sink applies the next epoch (WAIT).

    Tasks stage output with its epoch and apply it after the epoch's commit, in the stream's order, up to 1,000 commands in an
    atomic step. Not for Redis Cluster, which has no atomic step across its keys.
    """

    def __init__(
        self,
        url: str,
        command: Callable[[T_contra], Command | Sequence[Command] | None],
        *,
        options: Mapping[str, Any] | None = None,
        replicas: int = 0,
    ) -> None:
        if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
            raise ConfigError(f"RedisSink: replicas is {replicas!r}; it must be a number of replicas or 0")
        if not callable(command):
            raise ConfigError(f"RedisSink: command is {command!r}; it must be a function of an element")
        self._client = RedisClient(url, dict(options or {}))
        self._client.connect().close()
        self._command = command
        self._replicas = replicas
        self._known_commands: frozenset[str] | None = None

    def create_writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        return RowsWriter(context, CommandEncoder(self._command), names_of)

    def check(self, committables: list[JSON]) -> None:
        names = {name for each in committables for name in each["commands"]}
        if self._known_commands is not None and names <= self._known_commands:
            return
        with raising_errors(f"Redis at {self._client.place}"):
            client = self._client.connect()
            try:
                if self._known_commands is None:
                    _check_server(client.info(), self._client.place)
                _check_commands(client, sorted(names - (self._known_commands or frozenset())))
            finally:
                client.close()
        self._known_commands = (self._known_commands or frozenset()) | names

    def create_committer(self, context: CommitterContext) -> Committer:
        return RedisCommitter(context, self._client, self._replicas)

    def group(self, committable: JSON) -> str:
        group: str = committable["group"]
        return group

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known_commands": None}


def names_of(rows: Sequence[StagedRow]) -> dict[str, JSON]:
    return {"commands": sorted({(row[0] or b"").decode() for row in rows})}


def _check_server(info: Mapping[str, Any], place: str) -> None:
    """Raise ConfigError if the server's settings would break exactly once."""
    if info.get("cluster_enabled") or info.get("redis_mode") == "cluster":
        raise ConfigError(
            f"RedisSink: Redis at {place} is a cluster, whose keys cannot be changed in one atomic step with the sink's ledger; "
            "use a server without cluster-enabled, with replicas if need be"
        )
    if str(info.get("maxmemory_policy", "")).startswith("allkeys-"):
        raise ConfigError(
            f"RedisSink: Redis at {place} has the maxmemory-policy {info['maxmemory_policy']}, and may evict the sink's "
            "ledger; set it to noeviction or volatile-*"
        )


def _check_commands(client: Any, names: Sequence[str]) -> None:
    """Raise ConfigError for commands that the server does not know, or does not allow in scripts."""
    client.response_callbacks.pop("COMMAND", None)  # it fails for unknown commands
    for name, found in zip(names, client.execute_command("COMMAND", "INFO", *names) if names else (), strict=True):
        if found is None:
            raise ConfigError(f"RedisSink: the server does not know the command {name}; correct it, or load its module")
        if b"noscript" in (flag if isinstance(flag, bytes) else str(flag).encode() for flag in found[2]):
            raise ConfigError(f"RedisSink: {name} is not possible, because Redis does not allow it in scripts")
