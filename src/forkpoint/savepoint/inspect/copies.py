"""Local copies of a job's state files, which the job may remove at any time."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from forkpoint.errors import NotFound, StorageUnavailable
from forkpoint.savepoint.export.chain_reader import EntryFile, Wanted
from forkpoint.savepoint.export.committed_epochs import READERS, epoch_gone
from forkpoint.state.arrow_file import ArrowFile
from forkpoint.storage.base import Storage

_IN_MEMORY = 16 << 10  # smaller files are not mapped: a process may have only some ten thousand mappings


def copied(storage: Storage, wanted: Wanted, directory: str | None) -> ArrowFile:
    """A verified copy of a file, without a name: the system deletes it after its last use. Raises NotFound, SavepointCorrupt,
    and StorageUnavailable if the disk is full."""
    ref, kind = wanted
    data = ref.read(storage)
    return ArrowFile(data if len(data) <= _IN_MEMORY else _mapped(data, directory), kind, ref.name)


def _mapped(data: bytes, directory: str | None) -> mmap.mmap:
    try:
        with tempfile.TemporaryFile(prefix="forkpoint-state-", dir=directory) as file:
            file.write(data)
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise StorageUnavailable(
            f"a job's state cannot be copied to {directory or tempfile.gettempdir()}: {error}; give a directory, or a TMPDIR, "
            "with room for twice the size of the state"
        ) from error


@dataclass(frozen=True)
class CopiedWhenNeeded:
    """Copies the files of an epoch's state on demand and in parallel."""

    storage: Storage
    job: str
    epoch: int
    _open: dict[str, ArrowFile] = field(default_factory=dict)

    def __call__(self, wanted: Sequence[Wanted]) -> list[EntryFile]:
        missing = {ref.checksum: (ref, kind) for ref, kind in wanted if ref.checksum not in self._open}
        try:
            if len(missing) < 3:
                self._open.update((checksum, copied(self.storage, each, None)) for checksum, each in missing.items())
            else:
                with ThreadPoolExecutor(READERS) as pool:
                    files = pool.map(lambda each: copied(self.storage, each, None), missing.values())
                    self._open.update(zip(missing, files, strict=True))
        except NotFound:
            raise epoch_gone(self.job, self.epoch) from None
        return [self._open[ref.checksum] for ref, _ in wanted]
