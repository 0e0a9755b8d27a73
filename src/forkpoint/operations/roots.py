"""The state root of an operation."""

from __future__ import annotations

import os
from dataclasses import dataclass

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.config_file import DEFAULT_STATE_ROOT, STATE_ROOT, state_root
from forkpoint.errors import JobNotFound
from forkpoint.storage.base import LocalStorage, Storage, open_storage
from forkpoint.storage.places import absolute


@dataclass(frozen=True)
class StateRoot:
    """``given``: the state root; None for that of the environment or forkpoint.toml, or the default."""

    given: str | None = None

    @property
    def place(self) -> str:
        """The state root as an absolute path or URL."""
        return absolute(self.given or state_root() or DEFAULT_STATE_ROOT)

    @property
    def storage(self) -> Storage:
        return open_storage(self.place)

    @property
    def existing(self) -> Storage:
        """The storage, for operations that list. Raises JobNotFound if a configured state root is missing, because its name is
        most likely misspelt."""
        storage = self.storage
        if (self.given or state_root()) and isinstance(storage, LocalStorage) and not os.path.isdir(storage.root):
            raise JobNotFound(f"there is no state root {self.place}; check the path (--state-root, {STATE_ROOT})")
        return storage

    def new_savepoint(self, job: str, to: str | None, label: str | None) -> tuple[str, str]:
        """A new savepoint's id and path: ``to``, or below the state root. Raises ConfigError if the label is taken."""
        from forkpoint.savepoint.catalog.listing import free_label  # few commands make savepoints
        from forkpoint.savepoint.catalog.names import new_savepoint_id

        if label is not None:
            free_label(self.storage, job, label)
        savepoint_id = new_savepoint_id()
        default = f"{self.place.rstrip('/')}/{JobPaths(job).savepoint(savepoint_id)}"
        return savepoint_id, default if to is None else absolute(to)

    @property
    def log_directory(self) -> str:
        """A local directory for the logs of background drivers."""
        storage = self.storage
        return storage.root if isinstance(storage, LocalStorage) else os.path.abspath(DEFAULT_STATE_ROOT)
