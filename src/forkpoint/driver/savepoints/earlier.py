"""The job's last savepoint, to whose files the next one may refer."""

from __future__ import annotations

import logging
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


class LastSavepoint(Record, frozen=True, kw_only=True):
    """The job's last savepoint: in ``directory`` of the storage ``url``. Garbage collection keeps the changes since its epoch, as
    long as they are few."""

    format_version: Literal[1] = 1
    savepoint: Name
    epoch: Epoch
    url: str
    directory: Name


LAST = Format("last-savepoint.json", LastSavepoint, 1)


@dataclass
class Earlier:
    """Remembers the last savepoint across the runs of a job."""

    history: History
    _known: list[LastSavepoint | None] = field(default_factory=list)

    def known(self) -> LastSavepoint | None:
        if not self._known:
            self._known.append(LAST.load_if_whole(self.history.storage, self.history.paths.last_savepoint))
        return self._known[-1]

    def since(self) -> int | None:
        """The epoch of the last savepoint: the next one needs the changes after it."""
        try:
            known = self.known()
        except ForkpointError as error:
            log.warning("job %r: its last savepoint is unknown, so the next one has all state: %s", self.history.paths.job, error)
            return None
        return None if known is None else known.epoch

    def beside(self, target: Storage) -> OpenedSavepoint | None:
        """The last savepoint, if it still exists and is in the same directory as the new one in ``target``."""
        try:
            known, (around, _) = self.known(), storage_around(target)
            if known is None or known.url != around.url:
                return None
            opened = open_savepoint(around, known.directory)
        except SavepointCorrupt as error:
            log.warning("job %r: the next savepoint does not refer to the last one: %s", self.history.paths.job, error)
            return None
        except ForkpointError:  # deleted, or not reachable
            return None
        return opened if opened.savepoint.id == known.savepoint else None

    def made(self, savepoint: Savepoint, target: Storage) -> None:
        """Remember a new savepoint. Without the record, the next one has all state."""
        try:
            around, name = storage_around(target)
            last = LastSavepoint(savepoint=savepoint.id, epoch=savepoint.epoch, url=around.url, directory=name)
            self.history.storage.put(self.history.paths.last_savepoint, LAST.dump(last))
            self._known.append(last)
        except ConfigError:  # nothing around it
            return
        except ForkpointError as error:
            log.warning("job %r: savepoint %s cannot be the base of the next: %s", savepoint.job, savepoint.id, error)
