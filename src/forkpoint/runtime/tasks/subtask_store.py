"""The local store of one subtask, which catches up with committed epochs.

The next epoch, a moved task, a retry, a restart, a rescale and an export all use ``catch_up``: it advances the store to a
committed version, with the changes of the epochs between or from snapshots. A store never rolls back.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable

from forkpoint.checkpoint.paths import JobPaths, recovery_hint
from forkpoint.errors import NotFound, SavepointCorrupt, StorageError
from forkpoint.runtime.exchange.control import CatchUp, CatchUpKind, EpochContext
from forkpoint.runtime.tasks.committed_state import CommittedState, Share, part_bytes
from forkpoint.state import Amounts, Changes, Count, GrowthMeter, HostChanges, Store, WriteBackStore
from forkpoint.storage.base import Storage


class SubtaskState:
    """A store, and the changes that this process wrote in the last epoch, in case they are accepted. ``host``: the changes of all
    processes on the host, if there are several. ``memory_bytes``: the limit of the subtask's memory, if there is one."""

    def __init__(
        self,
        store: Store,
        storage: Storage,
        paths: JobPaths,
        share: Share,
        host: HostChanges | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        self.store = store
        self._state_root = CommittedState(storage, paths, share, part_bytes(memory_bytes))
        self._paths = paths
        self._share = share
        self._host = host
        self._pending: dict[int, tuple[str, Changes]] = {}
        self._pending_epoch = 0
        self.growth: defaultdict[int, GrowthMeter] = defaultdict(GrowthMeter)  # by stage
        self._counted: tuple[int, Amounts] | None = None  # from the last rebuild of the store by this process

    def keep(self, epoch: int, stage: int, attempt: str, changes: Changes) -> None:
        """Hold an attempt's changes; if the manifest names the attempt, they need not be read back."""
        if epoch != self._pending_epoch:
            self._pending, self._pending_epoch = {}, epoch
        self._pending[stage] = (attempt, changes)

    def offer(self, epoch: int, stage: int, attempt: str, changelog: bytes) -> None:
        """Write an attempt's changes, as a changelog, for the other processes on the host."""
        if self._host is not None:
            self._host.write(epoch, stage, attempt, changelog)

    def counted(self, epoch: int) -> Amounts | None:
        """The size of each state as of this epoch; None unless this process has rebuilt the store for this epoch."""
        return self._counted[1] if self._counted is not None and self._counted[0] == epoch else None

    def catch_up(self, context: EpochContext) -> CatchUp | None:
        """Catch up with the committed epoch; None if the store has caught up already."""
        version, began = self.store.version, time.perf_counter()
        if version == context.committed:
            return None
        return self._caught_up(self._catch_up(context, version), context.committed - version, began)

    def prepare(self, epoch: int) -> CatchUp | None:
        """``catch_up`` of a store that no task uses yet; None if it has reached the epoch."""
        version, began = self.store.version, time.perf_counter()
        if version >= epoch:
            return None
        return self._caught_up(self._read(version, epoch), epoch - version, began)

    def _caught_up(self, by: CatchUpKind, epochs: int, began: float) -> CatchUp:
        return CatchUp(self._share.subtask, by, epochs, round((time.perf_counter() - began) * 1000))

    def _catch_up(self, context: EpochContext, version: int) -> CatchUpKind:
        if version > context.committed:  # a rollback would corrupt the state of the newer epoch's task
            raise StorageError(
                f"job {self._paths.job!r}, subtask {self._share.subtask}: its local store has reached epoch {version}; this "
                f"task starts at epoch {context.committed}, so it is a leftover of an abandoned attempt"
            )
        accepted = self._accepted(context)
        if self._host is not None and accepted:
            self._host.accept(context.committed, accepted)
        own = {stage: attempt for stage, (attempt, _) in self._pending.items()}
        if 0 < version == context.committed - 1 == self._pending_epoch - 1 and accepted == own:
            merged = merge(self._pending[stage][1] for stage in sorted(accepted))
            self.store.apply(merged, context.committed, version)
            return "memory"
        version = self._follow_host(version, context.committed)
        if version == context.committed:
            return "host"
        try:
            by = self._read(version, context.committed)
        except (SavepointCorrupt, NotFound) as error:
            job = self._paths.job
            raise SavepointCorrupt(
                f"job {job!r}: cannot read the state of epoch {context.committed}: {error}\n{recovery_hint(job)}"
            ) from error
        if isinstance(self.store, WriteBackStore):
            self.store.flush()  # so that no other process must read the changes again
        return by

    def _follow_host(self, version: int, committed: int) -> int:
        """Apply the changes of other processes on this host; returns the new version of the store."""
        while self._host is not None and 0 < version < committed:
            parts = self._host.read(version + 1)
            if parts is None:
                current = self.store.version
                if current == version:
                    break
                version = current  # another process has meanwhile written the changes to the store and removed the files
            else:
                self.store.apply(merge(parts), version + 1, version)
                version += 1
        return version

    def _read(self, version: int, committed: int) -> CatchUpKind:
        """Advance the store from its version to a later, committed version from the state root."""
        if 0 < version < committed:
            for number, changes in enumerate(self._state_root.after(version, committed), version):
                self.store.apply(changes, number + 1, number)
            if self.store.version == committed:
                return "changes"
        manifest = self._state_root.manifest(committed)
        self.store.clear()
        count = Count()
        self.store.load(self._state_root.entries(manifest, count), committed)
        self._counted = committed, count.amounts
        return "rebuild"

    def _accepted(self, context: EpochContext) -> dict[int, str]:
        """The attempts of this subtask that the committed manifest names, by stage."""
        accepted: dict[int, str] = {}
        while (attempt := context.previous.get(f"{len(accepted) + 1}-{self._share.subtask}")) is not None:
            accepted[len(accepted) + 1] = attempt
        return accepted


def merge(parts: Iterable[Changes]) -> Changes:
    """The changes of several stages, which never change the same keys, as one Changes."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    return Changes([k for p in parts for k in p.keys], [v for p in parts for v in p.values])
