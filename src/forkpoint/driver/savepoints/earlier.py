"""The job's last savepoints, to whose files the next one may refer."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import Literal

from forkpoint.checkpoint.format import Format, Record
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Epoch, Name
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.errors import ConfigError, ForkpointError, SavepointCorrupt
from forkpoint.savepoint.format.opened_savepoint import OpenedSavepoint, open_savepoint
from forkpoint.savepoint.format.references import storage_around
from forkpoint.storage.base import Storage

log = logging.getLogger("forkpoint")

_REMEMBERED = 2  # so that one may be disposed of, as after a check of an upgrade


class Made(Record, frozen=True, kw_only=True):
    """A savepoint in ``directory`` of the storage ``url``."""

    savepoint: Name
    epoch: Epoch
    url: str
    directory: Name


class LastSavepoints(Record, frozen=True, kw_only=True):
    """The job's last savepoints, oldest first. Garbage collection keeps the changes since then, as long as they are few."""

    format_version: Literal[1] = 1
    savepoints: list[Made]


LAST = Format("last-savepoints.json", LastSavepoints, 1)


@dataclass
class Earlier:
    """Remembers the last savepoints across the runs of a job."""

    history: History
    _known: list[Made] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def _made(self) -> list[Made]:
        if self._known is None:
            found = LAST.load_if_whole(self.history.storage, self.history.paths.last_savepoints)
            self._known = [] if found is None else list(found.savepoints)
        return self._known

    def since(self) -> list[int]:
        """The epochs of the last savepoints: the next one needs the changes after one of them."""
        try:
            return [each.epoch for each in self._made()]
        except ForkpointError as error:
            log.warning("job %r: its last savepoints are unknown, so the next has all state: %s", self.history.paths.job, error)
            return []

    def beside(self, target: Storage) -> OpenedSavepoint | None:
        """The last savepoint that still exists in the same directory as the new one in ``target``."""
        try:
            around, _ = storage_around(target)
            known = [each for each in reversed(self._made()) if each.url == around.url]
        except ForkpointError:  # nothing around it, or not reachable
            return None
        for each in known:
            try:
                opened = open_savepoint(around, each.directory)
            except SavepointCorrupt as error:
                log.warning("job %r: the next savepoint does not refer to the last: %s", self.history.paths.job, error)
            except ForkpointError:  # deleted
                continue
            else:
                if opened.savepoint.id == each.savepoint:
                    return opened
        return None

    def made(self, savepoint: Savepoint, target: Storage) -> None:
        """Remember a new savepoint. Without the record, the next one has all state."""
        try:
            around, name = storage_around(target)
            new = Made(savepoint=savepoint.id, epoch=savepoint.epoch, url=around.url, directory=name)
            with self._lock:
                self._known = sorted([*self._made(), new], key=lambda each: each.epoch)[-_REMEMBERED:]
                self.history.storage.put(self.history.paths.last_savepoints, LAST.dump(LastSavepoints(savepoints=self._known)))
        except ConfigError:  # nothing around it
            return
        except ForkpointError as error:
            log.warning("job %r: savepoint %s cannot be the base of the next: %s", savepoint.job, savepoint.id, error)
