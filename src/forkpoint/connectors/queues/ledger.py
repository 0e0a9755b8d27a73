"""Tracks the messages that a source has received, planned and acknowledged.

A message is acknowledged once the epoch that read it is committed. If the broker delivers it again, because the acknowledgement
was lost with a connection, a process or a broker, the ledger recognizes its id.
"""

from __future__ import annotations

import base64
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from forkpoint.connectors.queues.messages import Received
from forkpoint.errors import RestoreRefused

RESTORED_SECONDS = 600.0  # the maximum lifetime of an earlier run's connection: some heartbeats
ACKNOWLEDGED_SECONDS = 60.0  # the maximum time in which a broker stores an acknowledgement
_DIGEST_BYTES = 12
_VERSION = 1


def digest(id: str) -> bytes:
    """A short digest of a message's id."""
    return blake2b(id.encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True)
class Due:
    """Deliveries to acknowledge: all up to ``up_to`` (None for none), and some later ones, ``others``."""

    up_to: int | None
    others: tuple[int, ...]

    def __bool__(self) -> bool:
        return self.up_to is not None or bool(self.others)


class Ledger:
    """Thread-safe: one thread receives and acknowledges, the driver's thread plans.

    Position: ``{"version": 1, "taken": n, "unacknowledged": ids, "acknowledged": ids}``: the number of planned messages, and
    digests of those that a broker may deliver again, because they are unacknowledged or were acknowledged recently. ``keep``
    limits the number of the latter. ``found_input`` is called when there are messages to plan where there were none.
    """

    def __init__(self, position: Any, keep: int) -> None:
        if position is not None and position.get("version") != _VERSION:
            raise RestoreRefused(
                f"the position of a queue has version {position.get('version')!r}; this version of forkpoint reads {_VERSION}"
            )
        now = time.monotonic()
        self.found_input: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._keep = keep
        self._taken: int = 0 if position is None else position["taken"]
        self._committed = self._taken
        self._waiting: deque[Received] = deque()
        self._deliveries: dict[int, Received] = {}  # by tag, in the order of tags
        self._by_id: dict[bytes, Received] = {}
        self._orphans: list[Received] = []  # planned messages whose connection was lost before their commit
        self._changed = False  # whether deliveries may have become due
        ids = {} if position is None else position
        self._restored = dict.fromkeys(_ids(ids.get("unacknowledged", "")), now + RESTORED_SECONDS)
        self._acknowledged = OrderedDict.fromkeys(_ids(ids.get("acknowledged", "")), now + ACKNOWLEDGED_SECONDS)

    # -- the thread that receives

    def receive(self, tag: int, message: Received) -> bool:
        """Add a delivery and return whether it is new. Tags increase within a connection."""
        with self._lock:
            known = None if message.id is None else self._known(message.id)
            self._deliveries[tag] = known or message
            self._changed |= known is not None
            first = known is None and not self._waiting
            if known is None:
                self._waiting.append(message)
                if message.id is not None:
                    self._by_id[message.id] = message
        if first:
            self.found_input()
        return known is None

    def skip(self, tag: int) -> None:
        """Add a delivery to acknowledge without reading it."""
        with self._lock:
            self._deliveries[tag] = Received(b"", number=0)
            self._changed = True

    def _known(self, id: bytes) -> Received | None:
        if (message := self._by_id.get(id)) is not None:
            return message
        if id in self._restored or id in self._acknowledged:
            return Received(b"", id=id, number=0)
        return None

    def due(self) -> Due:
        """The deliveries to acknowledge now."""
        with self._lock:
            if not self._changed:
                return Due(None, ())
            self._changed = False
            return _due([(tag, m.number is not None and m.number <= self._committed) for tag, m in self._deliveries.items()])

    def acknowledged(self, due: Due) -> None:
        """Record that the broker has these acknowledgements."""
        with self._lock:
            tags = [tag for tag in self._deliveries if due.up_to is not None and tag <= due.up_to]
            expires = time.monotonic() + ACKNOWLEDGED_SECONDS
            for tag in (*tags, *due.others):
                id = self._deliveries.pop(tag).id
                if id is not None:
                    self._by_id.pop(id, None)
                    self._restored.pop(id, None)
                    self._acknowledged[id] = expires
                    self._acknowledged.move_to_end(id)
            self._expire()

    def lost(self) -> None:
        """Record that the connection was lost: the broker will redeliver everything unacknowledged."""
        with self._lock:
            for message in self._waiting:
                if message.id is not None:
                    del self._by_id[message.id]
            self._waiting.clear()
            self._deliveries.clear()
            self._orphans = list(self._by_id.values())
            self._restore_orphans()

    # -- the driver

    def take(self, most: int) -> list[Received]:
        """The next messages, in order."""
        with self._lock:
            taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            for number, message in enumerate(taken, self._taken + 1):
                message.number = number
            self._taken += len(taken)
            return taken

    def commit(self, taken: int) -> None:
        """Record that committed epochs have read the messages up to this number."""
        with self._lock:
            self._committed = max(self._committed, taken)
            self._changed = True
            self._restore_orphans()

    def _restore_orphans(self) -> None:
        """Treat committed orphans like an earlier run's messages."""
        expires = time.monotonic() + RESTORED_SECONDS
        for message in self._orphans:
            settled = message.id is not None and (message.number or 0) <= self._committed
            if settled and self._by_id.pop(message.id or b"", None) is not None:
                self._restored[message.id or b""] = expires
        self._orphans = [message for message in self._orphans if (message.number or 0) > self._committed]

    @property
    def taken(self) -> int:
        return self._taken

    def position(self) -> dict[str, Any]:
        with self._lock:
            self._expire()
            planned = [id for id, message in self._by_id.items() if message.number is not None]
            return {
                "version": _VERSION,
                "taken": self._taken,
                "unacknowledged": _text((*self._restored, *planned)),
                "acknowledged": _text(self._acknowledged),
            }

    def _expire(self) -> None:
        now, kept = time.monotonic(), self._acknowledged
        while kept and (len(kept) > self._keep or next(iter(kept.values())) < now):
            kept.popitem(last=False)
        while self._restored and next(iter(self._restored.values())) < now:
            del self._restored[next(iter(self._restored))]


def _due(deliveries: Iterable[tuple[int, bool]]) -> Due:
    up_to, others, prefix = None, [], True
    for tag, is_due in deliveries:
        prefix = prefix and is_due
        if prefix:
            up_to = tag
        elif is_due:
            others.append(tag)
    return Due(up_to, tuple(others))


def _ids(text: str) -> list[bytes]:
    data = base64.b64decode(text, validate=True)
    return [data[at : at + _DIGEST_BYTES] for at in range(0, len(data), _DIGEST_BYTES)]


def _text(ids: Iterable[bytes]) -> str:
    return base64.b64encode(b"".join(ids)).decode("ascii")
