"""Reading a job's state while it runs: that of its last committed epoch, from its checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import EpochGone
from forkpoint.savepoint.export.chain import StateFiles
from forkpoint.savepoint.export.chain_reader import ChainReader, OpenFiles, blocks, one_copy
from forkpoint.savepoint.export.committed_epochs import READERS, CommittedEpochs
from forkpoint.savepoint.format.entries import Codec, Entries, codec_of
from forkpoint.savepoint.format.parquet import PartWriter
from forkpoint.savepoint.format.sorting import steps
from forkpoint.savepoint.inspect.copies import CopiedWhenNeeded
from forkpoint.savepoint.inspect.state_rows import StateCollection, StateRows
from forkpoint.state import decode_timer_key, first_kgs, prefix_stop, sid_range, state_key
from forkpoint.storage.base import Storage, open_storage
from forkpoint.storage.places import plain_place

T = TypeVar("T")

TRIES = 10


@dataclass(frozen=True, repr=False)
class LiveState(StateCollection["LiveStateReader"]):
    """The state of a job at its last committed epoch, consistent over all operators, while the job runs or after it ended.

    It is read from the checkpoints: the job is neither asked nor slowed, and has to have a driver no more. The job goes on, and
    removes the files of old epochs; what is read too late raises EpochGone, and a new LiveState reads the newest epoch. A
    ``StateFollower`` keeps the files itself, and is faster for many reads.
    """

    manifest: Manifest
    root: str
    reader: ChainReader

    @staticmethod
    def find(state_root: str | os.PathLike[str], job: str) -> LiveState:
        """The state of this job. Raises JobNotFound, which lists the jobs below the state root, and SavepointCorrupt."""
        return newest_state(open_storage(state_root), job)

    @property
    def job(self) -> str:
        """The job's name."""
        return self.manifest.job

    @property
    def run(self) -> str:
        """The run that committed the epoch."""
        return self.manifest.run

    @property
    def epoch(self) -> int:
        """The epoch."""
        return self.manifest.epoch

    @property
    def committed_ms(self) -> int:
        """When it was committed, in ms since 1970 UTC."""
        return self.manifest.created_ms

    @property
    def path(self) -> str:
        """The path or URL of its manifest."""
        return f"{plain_place(self.root.rstrip('/'))}/{JobPaths(self.job).manifest(self.epoch)}"

    @property
    def where(self) -> str:
        """The job and the epoch, for messages."""
        return f"job {self.job!r}, epoch {self.epoch}"

    @property
    def watermarks(self) -> dict[str, int]:
        """The operators' watermarks by uid, in ms since 1970."""
        return dict(self.manifest.watermarks)

    @cached_property
    def operators(self) -> list[str]:
        """The uids of all operators, and of those that are no longer in the program and whose state is kept."""
        known = [operator.uid for operator in self.manifest.operators]
        return list(dict.fromkeys([*known, *(state.uid for state in self.manifest.states)]))

    @cached_property
    def states(self) -> list[LiveStateReader]:
        """All states, and the timers of operators that have some."""
        found = []
        for uid in self.operators:
            own = [info for info in self.manifest.states if info.uid == uid]
            timers = tuple(sorted((info for info in own if info.is_timers), key=lambda info: info.kind))
            found += [LiveStateReader(self, (info,)) for info in own if not info.is_timers]
            found += [LiveStateReader(self, timers)] if timers else []
        return found

    def get(self, uid: str, name: str, key: object) -> object:
        """``state(uid, name).get(key)``: a value, list or dict; None if there is none."""
        return self.state(uid, name).get(key)


@dataclass(frozen=True, repr=False)
class LiveStateReader(StateRows):
    """One state of a job at an epoch, or the timers of an operator. Raises EpochGone if the job has removed the files since.

    With a time to live, entries that have expired are there until the job removes them; ``ttl_stamp`` says when it began.
    """

    live: LiveState
    kinds: tuple[StateInfo, ...]

    @property
    def infos(self) -> tuple[StateInfo, ...]:
        """The state's description; of timers one for each time domain."""
        return self.kinds

    @property
    def max_parallelism(self) -> int:
        """The number of key groups."""
        return self.live.manifest.max_parallelism

    @property
    def count(self) -> None:
        """Not known without reading."""
        return None

    @property
    def size(self) -> None:
        """Not known: all states of a job share files."""
        return None

    def tables(self) -> Iterator[pa.Table]:
        """The rows piece by piece, from some key groups at a time."""
        for info in self.kinds:
            codec = codec_of(info)
            for entries in self._entries(info):
                yield from _tables(codec, entries)

    def _entries(self, info: StateInfo) -> Iterator[Entries]:
        reader, sid = self.live.reader, info.sid
        if info.is_operator_state:
            found = reader.operator_state(sid)
            yield one_copy(sid, found) if info.kind == "broadcast" else found
            return
        reader.hold()  # reading takes a while
        for start, stop in steps(0, self.max_parallelism, reader.files.entries):
            yield reader.keyed(start, stop, sid)

    def of_encoded(self, group: int, key: bytes) -> Iterator[pa.Table]:
        """The rows of a key, which is encoded, of this key group."""
        for info in self.kinds:
            yield from _tables(codec_of(info), self._of_key(info, group, key))

    def _of_key(self, info: StateInfo, group: int, key: bytes) -> Entries:
        reader = self.live.reader
        if info.is_timers:  # their store keys begin with the time
            found = zip(*reader.between(*sid_range(group, info.sid)), strict=True)
            mine = [(name, value) for name, value in found if decode_timer_key(name).key == key]
            return [name for name, _ in mine], [value for _, value in mine]
        name = state_key(group, info.sid, key)
        if info.kind in ("list", "map") or info.namespace_type is not None:
            return reader.between(name, prefix_stop(name))
        value = reader.newest(name, READERS)
        return ([], []) if value is None else ([name], [value])

    def of_domain(self, infos: Sequence[StateInfo]) -> LiveStateReader:
        """The timers of these time domains."""
        return LiveStateReader(self.live, tuple(infos))

    def parquet_files(self, scratch: Path) -> Iterator[str]:
        """A file that is written for the query, as a savepoint's would be."""
        part = PartWriter(self.layout)
        for table in self.tables():
            part.write(table)
        scratch.mkdir(exist_ok=True)
        file = scratch / "part-0.parquet"
        file.write_bytes(part.finish())
        yield str(file)


def _tables(codec: Codec, entries: Entries) -> Iterator[pa.Table]:
    keys, values = entries
    for low, high in blocks(values):
        groups = first_kgs(pa.array(keys[low:high], pa.large_binary()))
        yield codec.to_table(groups, keys[low:high], values[low:high]).replace_schema_metadata()


def live_state(storage: Storage, manifest: Manifest, files: StateFiles, open_files: OpenFiles) -> LiveState:
    return LiveState(manifest, storage.url, ChainReader(files, open_files))


def newest_state(storage: Storage, job: str) -> LiveState:
    """The state of a job at its last committed epoch."""

    def opened() -> LiveState:
        epochs = CommittedEpochs(storage, job)
        manifest = epochs.load(epochs.newest_epoch())
        return live_state(storage, manifest, epochs.files(manifest), CopiedWhenNeeded(storage, job, manifest.epoch))

    return while_gone(opened)


def while_gone(read: Callable[[], T]) -> T:
    """What ``read`` returns; it is called again while it finds that the epoch that it reads is gone."""
    for _ in range(TRIES - 1):
        try:
            return read()
        except EpochGone:
            continue
    return read()
