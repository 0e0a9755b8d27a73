"""Reads a job's last committed state from its checkpoints, while the job runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import EpochGone
from forkpoint.savepoint.export.chain_reader import ChainReader, blocks, files_of, one_copy
from forkpoint.savepoint.export.committed_epochs import READERS, CommittedEpochs
from forkpoint.savepoint.format.entries import Codec, Entries, as_binary, codec_of
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

    Reads the checkpoints: this neither needs a driver nor slows the job. A running job removes the files of old epochs; then
    reads raise EpochGone, and a new LiveState reads the newest epoch. A ``StateFollower`` keeps copies of the files, and is
    faster for many reads.
    """

    manifest: Manifest
    root: str
    reader: ChainReader

    @staticmethod
    def find(state_root: str | os.PathLike[str], job: str) -> LiveState:
        """The state of a job. Raises JobNotFound, which lists the jobs below the state root, and SavepointCorrupt."""
        return newest_state(open_storage(state_root), job)

    @property
    def job(self) -> str:
        return self.manifest.job

    @property
    def run(self) -> str:
        """The run that committed the epoch."""
        return self.manifest.run

    @property
    def epoch(self) -> int:
        return self.manifest.epoch

    @property
    def committed_ms(self) -> int:
        """The commit time of the epoch, in ms since 1970 UTC."""
        return self.manifest.created_ms

    @property
    def path(self) -> str:
        """The path or URL of the manifest."""
        return f"{plain_place(self.root.rstrip('/'))}/{JobPaths(self.job).manifest(self.epoch)}"

    @property
    def where(self) -> str:
        return f"job {self.job!r}, epoch {self.epoch}"

    @property
    def watermarks(self) -> dict[str, int]:
        """The operators' watermarks by uid, in ms since 1970."""
        return dict(self.manifest.watermarks)

    @cached_property
    def operators(self) -> list[str]:
        """The uids of all operators, including removed operators whose state is kept."""
        known = [operator.uid for operator in self.manifest.operators]
        return list(dict.fromkeys([*known, *(state.uid for state in self.manifest.states)]))

    @cached_property
    def states(self) -> list[LiveStateReader]:
        found = []
        for uid in self.operators:
            own = [info for info in self.manifest.states if info.uid == uid]
            timers = tuple(sorted((info for info in own if info.is_timers), key=lambda info: info.kind))
            found += [LiveStateReader(self, (info,)) for info in own if not info.is_timers]
            found += [LiveStateReader(self, timers)] if timers else []
        return found

    def get(self, uid: str, name: str, key: object) -> object:
        """``state(uid, name).get(key)``: a value, list or dict; None if the key has no state."""
        return self.state(uid, name).get(key)


@dataclass(frozen=True, repr=False)
class LiveStateReader(StateRows):
    """A state of a job at an epoch, or the timers of an operator. Reads raise EpochGone if the job has removed the files.

    With a time to live, includes expired entries that the job has not removed yet; it counts from ``ttl_stamp``.
    """

    live: LiveState
    kinds: tuple[StateInfo, ...]

    @property
    def infos(self) -> tuple[StateInfo, ...]:
        return self.kinds

    @property
    def max_parallelism(self) -> int:
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
        """The rows in pieces, by ranges of key groups."""
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
        reader.open(files_of(reader.files))  # keeps the files while the rows are read, which may take long
        for start, stop in steps(0, self.max_parallelism, reader.files.entries):
            yield reader.keyed(start, stop, sid)

    def of_encoded(self, group: int, key: bytes) -> Iterator[pa.Table]:
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
        return LiveStateReader(self.live, tuple(infos))

    def parquet_files(self, scratch: Path) -> Iterator[str]:
        """Writes a file like those of a savepoint."""
        part = PartWriter(self.layout)
        for table in self.tables():
            part.write(table)
        scratch.mkdir(exist_ok=True)
        file = scratch / "part-0.parquet"
        file.write_bytes(part.finish())
        yield str(file)


def _tables(codec: Codec, entries: Entries) -> Iterator[pa.Table]:
    columns = as_binary(entries)
    for low, high in blocks(pc.binary_length(columns[1]).to_numpy()):
        keys, values = (column.slice(low, high - low) for column in columns)
        yield codec.table_of(first_kgs(keys), keys, values).replace_schema_metadata()


def newest_state(storage: Storage, job: str) -> LiveState:
    """The state of a job at its last committed epoch."""

    def opened() -> LiveState:
        epochs = CommittedEpochs(storage, job)
        manifest = epochs.load(epochs.newest_epoch())
        reader = ChainReader(epochs.files(manifest), CopiedWhenNeeded(storage, job, manifest.epoch))
        return LiveState(manifest, storage.url, reader)

    return while_gone(opened)


def while_gone(read: Callable[[], T]) -> T:
    """The result of ``read``, which is retried if it raises EpochGone."""
    for _ in range(TRIES - 1):
        try:
            return read()
        except EpochGone:
            continue
    return read()
