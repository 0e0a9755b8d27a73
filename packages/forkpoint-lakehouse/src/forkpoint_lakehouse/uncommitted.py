"""Notes of data files that may never be committed, so that they can be removed.

Data files get their final path before their epoch is committed; readers ignore them until the table's metadata names them. Before
a writer creates files, it notes their paths below the job's directory in the state root. The commit of an epoch removes its
files' notes. Because epochs are committed in order, all remaining notes of this and earlier epochs belong to failed attempts: the
commit removes their files, too. A file that a presumed-dead task writes later stays until the table's own maintenance removes
orphans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.storage.base import open_storage


@dataclass(frozen=True)
class Uncommitted:
    """A sink's notes."""

    state_root: str
    job: str
    uid: str

    def note(self, epoch: int, name: str, files: Collection[str]) -> str:
        """Note files before they are written. Returns the note's path, for `forget` or `settle`."""
        path = JobPaths(self.job).uncommitted_file(self.uid, epoch, name)
        open_storage(self.state_root).put(path, json.dumps(sorted(files)).encode())
        return path

    def forget(self, notes: Collection[str]) -> None:
        """Remove notes whose files have been committed or removed."""
        open_storage(self.state_root).delete_all(sorted(notes))

    def settle(self, epoch: int, committed: Collection[str], remove: Callable[[list[str]], None]) -> None:
        """After an epoch's commit, forget its files and ``remove`` files that no epoch up to it has committed."""
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
