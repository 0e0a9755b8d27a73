"""Applies committed commands exactly once, in chunks; a chunk and its ledger entry are one atomic step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.ledger import REDIS_HASH, entry_name, refuse_put_back
from forkpoint.connectors.rows import staged_rows
from forkpoint.contract.sink import Committer, CommitterContext
from forkpoint.errors import JobFailed, OutputLost, SystemUnavailable
from forkpoint_redis.client import RedisClient, raising_errors, server_error
from forkpoint_redis.script import Ledger, Progress

CHUNK_COMMANDS = 1_000  # a chunk blocks the server
CHUNK_BYTES = 4_000_000
REPLICA_WAIT_MS = 10_000
_SHOWN_BYTES = 80


class RedisCommitter(Committer):
    """Applies a group's output. ``replicas``: the number of replicas that must receive it."""

    def __init__(self, context: CommitterContext, client: RedisClient, replicas: int) -> None:
        self._context = context
        self._settings = client
        self._replicas = replicas
        self._client: Any = None
        self._known = Progress()
        self.entry = entry_name(context, of_group=True)

    def commit(self, output: EpochOutput, newest: int) -> None:
        with raising_errors(f"Redis at {self._settings.place}"):
            if self._client is None:
                self._client = self._settings.connect()
            self._commit(Ledger(self._client, self.entry), output, newest)

    def _commit(self, ledger: Ledger, output: EpochOutput, newest: int) -> None:
        at = self._checked(ledger.progress(), newest)
        if at.epoch > output.epoch:
            return
        if at.epoch < output.epoch:
            at = Progress(output.epoch)
        commands = staged_rows(self._context, output.committables)
        applied = False
        while at.done < len(commands):
            chunk = next(chunks(commands[at.done : at.done + CHUNK_COMMANDS]))
            noted, problem = ledger.apply(at, chunk)
            self._checked(noted, newest)
            if noted.epoch > output.epoch:
                return
            if problem is not None:
                raise self._failed(commands[noted.done], problem)
            at, applied = noted, True
        if self._replicas:
            self._wait(ledger, at, applied)

    def _checked(self, noted: Progress, newest: int) -> Progress:
        """Check progress from the ledger; raises OutputLost if the server has lost writes."""
        place = f"Redis at {self._settings.place}: entry {self.entry!r} of the hash {REDIS_HASH!r}"
        refuse_put_back(noted.epoch, newest, place)
        if noted < self._known:
            raise OutputLost(
                f"{place} was at epoch {self._known.epoch}, command {self._known.done}, and is now at epoch {noted.epoch}, "
                f"command {noted.done}: the server has lost writes that it had acknowledged (it was restarted, a replica took "
                "over, or keys were deleted). Restore an earlier savepoint, or start the job again to continue without them; set "
                "appendfsync to always to avoid this"
            )
        self._known = noted
        return noted

    def _failed(self, command: Sequence[bytes | None], problem: str) -> Exception:
        shown = " ".join(repr((part or b"")[:_SHOWN_BYTES])[1:] for part in command[:4])
        what = f"Redis at {self._settings.place}: the command {shown}{' …' if len(command) > 4 else ''} failed"
        error = server_error(problem, what)
        if isinstance(error, JobFailed):
            return JobFailed(f"{error}. It is the next command to apply: correct what it needs, and start the job again")
        return error

    def _wait(self, ledger: Ledger, at: Progress, applied: bool) -> None:
        """Wait until replicas have the applied commands. WAIT covers only writes of this connection."""
        if not applied:
            ledger.apply(at, [])  # writes the same entry again
        received = self._client.wait(self._replicas, REPLICA_WAIT_MS)
        if received < self._replicas:
            raise SystemUnavailable(
                f"Redis at {self._settings.place}: {received} of {self._replicas} replicas have received epoch {at.epoch} within "
                f"{REPLICA_WAIT_MS // 1000} s"
            )

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def chunks(commands: Sequence[Sequence[bytes | None]]) -> Iterator[Sequence[Sequence[bytes | None]]]:
    """Splits commands into chunks of at most `CHUNK_COMMANDS` commands and about `CHUNK_BYTES` bytes."""
    start = size = 0
    for at, command in enumerate(commands):
        own = sum(len(part or b"") for part in command)
        if at > start and (at - start >= CHUNK_COMMANDS or size + own > CHUNK_BYTES):
            yield commands[start:at]
            start, size = at, 0
        size += own
    if start < len(commands):
        yield commands[start:]
