"""Plans the messages that an epoch reads from a queue: received messages, stored below the state root for the tasks.

Once the epoch's manifest is written, the messages are acknowledged and their file is removed. Until then the broker has them, so
that a run that dies loses nothing, and the next run receives them again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import pairwise

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.connectors.queues.ledger import Ledger
from forkpoint.connectors.queues.messages import pack
from forkpoint.connectors.queues.receiver import Connection, Receiver
from forkpoint.contract.sink import stage
from forkpoint.contract.source import JSON, SourceContext, SplitEnumerator, SplitRange
from forkpoint.errors import ConfigError

MIN_ROWS = 100  # of a piece: a file for fewer rows costs more than it saves


class QueueEnumerator(SplitEnumerator):
    """The position is the ledger's. ``name``: the source's, for messages. ``split``: the only split's name. ``window``: the
    maximum number of unacknowledged messages. ``connect``: see `Receiver`."""

    def __init__(
        self,
        name: str,
        split: str,
        context: SourceContext,
        window: int,
        connect: Callable[[Ledger], Connection],
        position: JSON | None,
    ) -> None:
        self._name = name
        self._split = split
        self._context = context
        self._connect = connect
        self._ledger = Ledger(position, window)
        self._announced = position is not None
        self._directory = JobPaths(context.job).received(context.uid)
        self._own = f"{self._directory}/{uuid.uuid4().hex}"
        self._stored: list[tuple[int, list[str]]] = []  # the number of the last message in some files, and the files
        self._receiver: Receiver | None = None

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        if not self._receiving().ready():
            return []
        start = self._ledger.taken
        messages = self._ledger.take(max_rows)
        announces = not self._announced
        self._announced = True
        if not messages:
            return [SplitRange(self._split, 0, start, start, 0)] if announces else []
        pieces = max(1, min(parallelism_hint, len(messages) // MIN_ROWS))
        cuts = [len(messages) * i // pieces for i in range(pieces + 1)]
        ranges, paths = [], []
        for piece, (a, b) in enumerate(pairwise(cuts)):
            path = f"{self._own}/{start + a:015d}"
            stored = stage(self._context.state_root, path, pack(messages[a:b]))
            paths += [stored["path"]] if "path" in stored else []
            ranges.append(SplitRange(self._split, piece, start + a, start + b, b - a, stored))
        self._stored.append((self._ledger.taken, paths))
        return ranges

    def on_input(self, wake: Callable[[], None]) -> None:
        self._ledger.found_input = wake

    def _receiving(self) -> Receiver:
        if self._receiver is None:
            ledger, connect = self._ledger, self._connect
            self._receiver = Receiver(
                self._name, ledger, lambda: connect(ledger), self._context.state_root, self._directory, self._own
            )
        return self._receiver

    @property
    def position(self) -> JSON:
        return self._ledger.position()

    @property
    def finished(self) -> bool:
        return False

    def stop_at(self, position: JSON) -> None:
        raise ConfigError(f"{self._name}: a queue's messages cannot be read again, so there is no replay of them")

    def committed(self, position: JSON) -> None:
        taken: int = position["taken"]
        self._ledger.commit(taken)
        if self._receiver is not None:
            self._receiver.remove([path for last, paths in self._stored if last <= taken for path in paths])
        self._stored = [(last, paths) for last, paths in self._stored if last > taken]

    def close(self) -> None:
        if self._receiver is None:
            return
        self._receiver.remove([path for _, paths in self._stored for path in paths])
        self._receiver.close()
