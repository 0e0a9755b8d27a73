"""Notes of data files that may never be committed, so that they are removed.

Data files get their final place and name before their epoch is committed: nobody reads them until the table's metadata names
them. Before a writer creates some, it notes their paths below the job's directory in the state root. The commit of an epoch
removes its files' notes. As one epoch is committed after the other, all notes that are left of this and earlier epochs are of
attempts that failed: it removes their files, too. Not so a file that is written by a task which everybody believed dead: such
files stay until the table's own maintenance removes orphans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.storage.base import open_storage


@dataclass(frozen=True)
class Uncommitted:
    """The notes of one sink."""

    state_root: str
    job: str
    uid: str

    def note(self, epoch: int, name: str, files: Collection[str]) -> str:
        """Note files that are about to be written. Returns the note's path, for `forget` or `settle`."""
        path = JobPaths(self.job).uncommitted_file(self.uid, epoch, name)
        open_storage(self.state_root).put(path, json.dumps(sorted(files)).encode())
        return path

    def forget(self, notes: Collection[str]) -> None:
        """Remove notes, the files of which are committed or removed."""
        open_storage(self.state_root).delete_all(sorted(notes))

    def settle(self, epoch: int, committed: Collection[str], remove: Callable[[list[str]], None]) -> None:
        """After an epoch's commit: forget its files, and ``remove`` those that no epoch up to it has committed."""
        storage, paths = open_storage(self.state_root), JobPaths(self.job)
        self.forget(committed)
        left = [
            note
            for note in storage.list(paths.uncommitted(self.uid))
            if note not in committed and paths.uncommitted_epoch(note) <= epoch
        ]
        for note in left:
            remove(json.loads(storage.read(note)))
        if left:
            storage.delete_all(left)
