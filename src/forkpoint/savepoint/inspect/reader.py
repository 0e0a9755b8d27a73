"""Reads savepoints: operators, states, timers and positions, as tables and as Python objects."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from forkpoint.checkpoint.manifest import Parent, SourcePosition
from forkpoint.checkpoint.savepoint_manifest import Savepoint, SavepointState
from forkpoint.checkpoint.states import StateInfo
from forkpoint.savepoint.catalog.display import savepoint_html
from forkpoint.savepoint.catalog.listing import LATEST, find_savepoint
from forkpoint.savepoint.format.layers import SavedFile
from forkpoint.savepoint.format.layout import layout_of
from forkpoint.savepoint.format.opened_savepoint import OpenedSavepoint, Verified, open_savepoint, verify_files
from forkpoint.savepoint.format.rows import Rows
from forkpoint.savepoint.format.tasks import Progress, no_progress
from forkpoint.savepoint.inspect.state_rows import StateCollection, StateRows
from forkpoint.storage.base import LocalStorage, open_storage
from forkpoint.storage.places import plain_place


@dataclass(frozen=True, repr=False)
class SavepointReader(StateCollection["StateReader"]):
    """Reads a savepoint, without running a job. Modelled on Flink's ``SavepointReader``.

    Verifies all data: SavepointCorrupt names a damaged file. Reads one file at a time, so it needs memory for one slice of a
    state, unless you request a whole table.
    """

    opened: OpenedSavepoint

    def __repr__(self) -> str:
        saved = self.opened.savepoint
        return f"<SavepointReader of {saved.id}, job {saved.job!r}, epoch {saved.epoch}>"

    def _repr_html_(self) -> str:
        return savepoint_html(self.opened.savepoint, plain_place(self.opened.url))

    @staticmethod
    def read(path: str | os.PathLike[str]) -> SavepointReader:
        """The savepoint at a path or URL. Raises SavepointNotFound and SavepointCorrupt."""
        return SavepointReader(open_savepoint(os.fspath(path)))

    @staticmethod
    def find(state_root: str | os.PathLike[str], job: str, name: str = LATEST) -> SavepointReader:
        """A job's savepoint with this id or label, by default the latest. Raises SavepointNotFound listing the savepoints."""
        return SavepointReader(find_savepoint(open_storage(state_root), job, name))

    @property
    def path(self) -> str:
        """The savepoint's URL."""
        return self.opened.url

    @property
    def where(self) -> str:
        return self.opened.url

    @property
    def job(self) -> str:
        return self.opened.savepoint.job

    @property
    def epoch(self) -> int:
        return self.opened.savepoint.epoch

    @property
    def metadata(self) -> Savepoint:
        """The contents of ``savepoint.json``: id, job, run, epoch, label, versions, types, files. Times are ms since 1970."""
        return self.opened.savepoint

    @property
    def parent(self) -> Parent:
        """The checkpoint or savepoint that the run started from, or that an edited savepoint was made from."""
        return self.opened.savepoint.parent

    @property
    def operators(self) -> list[str]:
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
        found = []
        for operator in self.opened.savepoint.operators:
            found += [StateReader(self.opened, (state,)) for state in operator.states if not state.info.is_timers]
            if timers := tuple(state for state in operator.states if state.info.is_timers):
                found.append(StateReader(self.opened, timers))
        return found

    def verify(self, progress: Progress = no_progress) -> Verified:
        """Read every file and compare it with its record. Raises SavepointCorrupt naming all damaged files."""
        return verify_files(self.opened, progress=progress)


@dataclass(frozen=True, repr=False)
class StateReader(StateRows):
    """A state of a savepoint, or the timers of an operator, in the columns of its files (see ``savepoint.format.layout``).

    Records have a column for each field. Types that Arrow lacks are binary (msgpack) in tables; ``rows()`` and ``get()``
    return Python objects, records as NamedTuples or Rows.
    """

    opened: OpenedSavepoint
    saved: tuple[SavepointState, ...]

    @property
    def infos(self) -> tuple[StateInfo, ...]:
        return tuple(state.info for state in self.saved)

    @property
    def max_parallelism(self) -> int:
        return self.opened.savepoint.max_parallelism

    @property
    def count(self) -> int:
        """The number of rows: entries, or for lists elements."""
        return sum(state.entries for state in self.saved)

    @property
    def size(self) -> int:
        """The size of all files in bytes, with those of earlier savepoints that it refers to."""
        return sum(state.bytes for state in self.saved)

    def parts(self) -> list[tuple[StateInfo, SavedFile]]:
        """The files that have rows."""
        return [(state.info, self.opened.file(file)) for state in self.saved for file in state.files if file.entries]

    def part(self, info: StateInfo, file: SavedFile, groups: tuple[int, int] | None = None) -> Iterator[pa.Table]:
        """The rows of a file, a row group at a time; with ``groups`` only rows of these key groups."""
        return file.tables(self.opened.storage, layout_of(info), groups)

    def tables(self, groups: tuple[int, int] | None = None) -> Iterator[pa.Table]:
        """The rows in pieces, a file at a time; with ``groups`` only key groups ``start`` <= kg < ``stop``."""
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
        for table in self.tables((group, group + 1)):
            keys = Rows(self.layout, table).encoded("key")
            if rows := [row for row, each in enumerate(keys) if each == key]:
                yield table.take(pa.array(rows))

    def of_domain(self, infos: Sequence[StateInfo]) -> StateReader:
        return StateReader(self.opened, tuple(state for state in self.saved if state.info in infos))

    def parquet_files(self, scratch: Path) -> Iterator[str]:
        """Verified files on the local disk: the savepoint's files, or copies below ``scratch`` if they are remote or have changes
        in other files."""
        storage = self.opened.storage
        files = [(saved.info, file) for saved in self.saved for file in saved.files]
        filled = [each for each in files if each[1].entries] or files[:1]  # an empty file has the columns
        for number, (info, file) in enumerate(filled):
            saved = self.opened.file(file)
            copy = scratch / f"part-{number}.parquet"
            if saved.changes:
                scratch.mkdir(exist_ok=True)
                with ParquetWriter(copy, layout_of(info).schema, compression="lz4", use_dictionary=False) as writer:
                    for table in self.part(info, saved):
                        writer.write_table(table)
                yield str(copy)
                continue
            data, inside = saved.ref.read(storage), saved.ref.path or ""
            path = str(Path(storage.root) / inside) if isinstance(storage, LocalStorage) else ""
            if path and not set("*?[").intersection(path):  # DuckDB would expand it as a pattern
                yield path
            else:
                scratch.mkdir(exist_ok=True)
                copy.write_bytes(data)
                yield str(copy)
