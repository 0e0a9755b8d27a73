"""Reading savepoints: operators, states, timers and positions, as tables and as Python objects."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from forkpoint.checkpoint.manifest import Parent, SourcePosition
from forkpoint.checkpoint.savepoint_manifest import Savepoint, SavepointState
from forkpoint.checkpoint.states import StateInfo
from forkpoint.savepoint.catalog.display import savepoint_html
from forkpoint.savepoint.catalog.listing import LATEST, find_savepoint
from forkpoint.savepoint.format.layout import layout_of
from forkpoint.savepoint.format.parquet import SavedFile
from forkpoint.savepoint.format.reading import OpenedSavepoint, Verified, open_savepoint, verify_files
from forkpoint.savepoint.format.rows import Rows
from forkpoint.savepoint.format.tasks import Progress, no_progress
from forkpoint.savepoint.inspect.state_rows import StateCollection, StateRows
from forkpoint.storage.base import LocalStorage, open_storage
from forkpoint.storage.places import plain_place


@dataclass(frozen=True, repr=False)
class SavepointReader(StateCollection["StateReader"]):
    """Reads a savepoint, without running a job. After Flink's ``SavepointReader``.

    All data is verified: SavepointCorrupt names a damaged file. Files are read one at a time, so memory is needed for one
    slice of a state, unless a whole table is requested.
    """

    opened: OpenedSavepoint

    def __repr__(self) -> str:
        saved = self.opened.savepoint
        return f"<SavepointReader of {saved.id}, job {saved.job!r}, epoch {saved.epoch}>"

    def _repr_html_(self) -> str:
        """In a notebook: its operators and states."""
        return savepoint_html(self.opened.savepoint, plain_place(self.opened.url))

    @staticmethod
    def read(path: str | os.PathLike[str]) -> SavepointReader:
        """The savepoint at a path or URL. Raises SavepointNotFound and SavepointCorrupt."""
        return SavepointReader(open_savepoint(os.fspath(path)))

    @staticmethod
    def find(state_root: str | os.PathLike[str], job: str, name: str = LATEST) -> SavepointReader:
        """A job's savepoint with this id or label, by default the latest.

        Raises SavepointNotFound, which lists the job's savepoints.
        """
        return SavepointReader(find_savepoint(open_storage(state_root), job, name))

    @property
    def path(self) -> str:
        """Its URL."""
        return self.opened.url

    @property
    def where(self) -> str:
        """Its URL, in messages."""
        return self.opened.url

    @property
    def job(self) -> str:
        """The job that it is of."""
        return self.opened.savepoint.job

    @property
    def epoch(self) -> int:
        """The epoch that it was taken of."""
        return self.opened.savepoint.epoch

    @property
    def metadata(self) -> Savepoint:
        """The contents of ``savepoint.json``: id, job, run, epoch, label, versions, types, files. Times are ms since 1970."""
        return self.opened.savepoint

    @property
    def parent(self) -> Parent:
        """What its run started from; for an edited savepoint, the one that it was made from."""
        return self.opened.savepoint.parent

    @property
    def operators(self) -> list[str]:
        """The uids of all operators."""
        return [operator.uid for operator in self.opened.savepoint.operators]

    @property
    def watermarks(self) -> dict[str, int]:
        """The operators' watermarks by uid, in ms since 1970."""
        return dict(self.opened.savepoint.watermarks)

    @property
    def positions(self) -> dict[str, SourcePosition]:
        """Where each source resumes, by uid: its own position as JSON, and its splits' watermarks."""
        return dict(self.opened.savepoint.sources)

    @cached_property
    def states(self) -> list[StateReader]:
        """All states, and the timers of operators that have some."""
        found = []
        for operator in self.opened.savepoint.operators:
            timers: list[SavepointState] = []
            for state in operator.states:
                if state.info.is_timers:
                    timers.append(state)
                else:
                    found.append(StateReader(self.opened, (state,)))
            if timers:
                found.append(StateReader(self.opened, tuple(timers)))
        return found

    def verify(self, progress: Progress = no_progress) -> Verified:
        """Read every file and compare it with its record. Raises SavepointCorrupt naming all that are damaged."""
        return verify_files(self.opened, progress=progress)


@dataclass(frozen=True, repr=False)
class StateReader(StateRows):
    """One state of a savepoint, or the timers of an operator, in the columns of its files (see ``savepoint.layout``).

    Records have a column for each field. Types that Arrow lacks are binary (msgpack) in tables; ``rows()`` and ``get()``
    return Python objects, records as NamedTuples or Rows.
    """

    opened: OpenedSavepoint
    saved: tuple[SavepointState, ...]

    @property
    def infos(self) -> tuple[StateInfo, ...]:
        """The state's description; of timers one for each time domain."""
        return tuple(state.info for state in self.saved)

    @property
    def max_parallelism(self) -> int:
        """The number of key groups."""
        return self.opened.savepoint.max_parallelism

    @property
    def count(self) -> int:
        """The number of rows: entries, or for lists elements."""
        return sum(state.entries for state in self.saved)

    @property
    def size(self) -> int:
        """The size of its files in bytes."""
        return sum(state.bytes for state in self.saved)

    def parts(self) -> list[tuple[StateInfo, SavedFile]]:
        """Its files that have rows."""
        return [(state.info, self.opened.file(file)) for state in self.saved for file in state.files if file.entries]

    def part(self, info: StateInfo, file: SavedFile, groups: tuple[int, int] | None = None) -> Iterator[pa.Table]:
        """The rows of a file, a row group at a time; with ``groups`` only those of these key groups."""
        return file.tables(self.opened.storage, layout_of(info), groups)

    def tables(self, groups: tuple[int, int] | None = None) -> Iterator[pa.Table]:
        """The rows piece by piece, from one file at a time; with ``groups`` those of key groups ``start`` <= kg < ``stop``."""
        for info, file in self.parts():
            if groups is None or file.overlaps(*groups):
                for table in self.part(info, file, groups):
                    yield table.replace_schema_metadata()

    def to_spark(self, spark: Any) -> Any:
        """All rows as a DataFrame of this Spark session, one task per file; all executors must be able to open the URL.

        Raises TypeNotSupported naming a column whose type Spark lacks.
        """
        from forkpoint.savepoint.inspect.frames import frame_of

        return frame_of(spark, self)

    def of_encoded(self, group: int, key: bytes) -> Iterator[pa.Table]:
        """The rows of a key, which is encoded, of this key group."""
        for table in self.tables((group, group + 1)):
            keys = Rows(self.layout, table).encoded("key")
            places = [i for i, each in enumerate(keys) if each == key]
            if places:
                yield table.take(pa.array(places))

    def of_domain(self, infos: Sequence[StateInfo]) -> StateReader:
        """The timers of these time domains."""
        return StateReader(self.opened, tuple(state for state in self.saved if state.info in infos))

    def parquet_files(self, scratch: Path) -> Iterator[str]:
        """Verified files on this machine's disk: the savepoint's own, or copies below ``scratch`` if it is elsewhere."""
        storage = self.opened.storage
        every = [file for saved in self.saved for file in saved.files]
        filled = [file for file in every if file.entries] or every[:1]  # an empty one has the columns
        for number, file in enumerate(filled):
            ref = self.opened.file(file).ref
            data = ref.read(storage)
            place = str(Path(storage.root) / (ref.path or "")) if isinstance(storage, LocalStorage) else ""
            if place and not set("*?[").intersection(place):  # DuckDB would take it for a pattern
                yield place
            else:
                scratch.mkdir(exist_ok=True)
                copy = scratch / f"part-{number}.parquet"
                copy.write_bytes(data)
                yield str(copy)
