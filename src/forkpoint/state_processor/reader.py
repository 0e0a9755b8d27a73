"""Reading savepoints: operators, states, timers and positions, as tables and as Python objects."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from forkpoint.checkpoint.manifest import Parent, SourcePosition
from forkpoint.checkpoint.savepoint_manifest import Savepoint, SavepointState
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import ConfigError
from forkpoint.extras import require
from forkpoint.savepoint.catalog import LATEST, find_savepoint
from forkpoint.savepoint.display import savepoint_html
from forkpoint.savepoint.layout import Layout, layout_of
from forkpoint.savepoint.parquet import SavedFile
from forkpoint.savepoint.reading import OpenedSavepoint, Verified, open_savepoint, verify_files
from forkpoint.savepoint.rows import Rows
from forkpoint.savepoint.tasks import Progress, no_progress
from forkpoint.state import key_group, key_hash
from forkpoint.state_processor.names import TIMERS, no_domain, no_operator, no_state
from forkpoint.state_processor.rows import objects_of
from forkpoint.state_processor.steps import entries_of
from forkpoint.storage.base import open_storage
from forkpoint.storage.places import plain_place
from forkpoint.types import TypeInformation


@dataclass(frozen=True)
class SavepointReader:
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

    def state(self, uid: str, name: str) -> StateReader:
        """One state. Raises StateNotFound, which lists the operator's states."""
        if uid not in self.operators:
            raise no_operator(uid, self.operators, self.path)
        plain = [state for state in self.states if state.uid == uid and not state.is_timers]
        found = next((state for state in plain if state.name == name), None)
        if found is None:
            raise no_state(uid, name, [state.name for state in plain], self.path)
        return found

    def timers(self, uid: str, domain: str | None = None) -> StateReader:
        """An operator's timers: "event", "processing", or both. Raises StateNotFound if the operator has no such timers,
        and ConfigError for another ``domain``."""
        if domain is not None and domain not in TIMERS:
            raise ConfigError(no_domain(domain))
        if uid not in self.operators:
            raise no_operator(uid, self.operators, self.path)
        found = next((state for state in self.states if state.uid == uid and state.is_timers), None)
        if found is None:
            with_timers = [state.uid for state in self.states if state.is_timers]
            raise no_state(uid, "timers", [f"timers of {other}" for other in with_timers], self.path)
        if domain is None:
            return found
        chosen = tuple(each for each in found.saved if each.info.name == TIMERS[domain])
        if not chosen:
            others = [f"{other} timers" for other in TIMERS if other != domain]
            raise no_state(uid, f"{domain} timers", others, self.path)
        return StateReader(self.opened, chosen)

    def query(self, sql: str) -> pa.Table:
        """The result of a SELECT, in DuckDB's dialect, over the views ``"uid"."state"`` and ``"uid"."timers"``.

        ``views()`` lists them. Columns are those of the files. Raises EditRefused if the query is invalid.
        """
        require("duckdb", "SQL over savepoints")
        from forkpoint.state_processor.sql import query  # DuckDB only where it is used

        return query(self, sql)

    def views(self) -> dict[tuple[str, str], StateReader]:
        """The views of ``query`` by schema (the uid) and name. SQL ignores case: a name that is taken gets the suffix
        ``_2``."""
        require("duckdb", "SQL over savepoints")
        from forkpoint.state_processor.sql import views

        return views(self)

    def verify(self, progress: Progress = no_progress) -> Verified:
        """Read every file and compare it with its record. Raises SavepointCorrupt naming all that are damaged."""
        return verify_files(self.opened, progress=progress)


@dataclass(frozen=True)
class StateReader:
    """One state of a savepoint, or the timers of an operator, in the columns of its files (see ``savepoint.layout``).

    Records have a column for each field. Types that Arrow lacks are binary (msgpack) in tables; ``rows()`` and ``get()``
    return Python objects, records as NamedTuples or Rows.
    """

    opened: OpenedSavepoint
    saved: tuple[SavepointState, ...]

    @property
    def uid(self) -> str:
        """The operator's uid."""
        return self.saved[0].info.uid

    @property
    def name(self) -> str:
        """The state's name; "timers" for timers."""
        return "timers" if self.is_timers else self.saved[0].info.name

    @property
    def kind(self) -> str:
        """value, list, map, reducing, aggregating, operator-list, operator-union, broadcast or timers."""
        return "timers" if self.is_timers else self.saved[0].info.kind

    @property
    def is_timers(self) -> bool:
        """Whether these are timers."""
        return self.saved[0].info.is_timers

    @property
    def count(self) -> int:
        """The number of rows: entries, or for lists elements."""
        return sum(state.entries for state in self.saved)

    @property
    def size(self) -> int:
        """The size of its files in bytes."""
        return sum(state.bytes for state in self.saved)

    @cached_property
    def layout(self) -> Layout:
        """The meaning of the columns."""
        return layout_of(self.saved[0].info)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.layout.schema.remove_metadata()

    @property
    def key_type(self) -> TypeInformation | None:
        """The type of keys; None for operator state."""
        return self.layout.part("key").type if self.layout.has("key") else None

    @property
    def value_type(self) -> TypeInformation | None:
        """The type of values; None for timers."""
        return self.layout.part("value").type if self.layout.has("value") else None

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

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches, from one file at a time."""
        for table in self.tables():
            yield from table.to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream, for DuckDB, Polars, or ``with_state`` of a writer."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def to_arrow(self) -> pa.Table:
        """All rows, in memory."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def to_pandas(self) -> Any:
        """All rows, as a pandas DataFrame in memory. Raises ConfigError where pandas is not installed."""
        require("pandas", "to_pandas()")
        return self.to_arrow().to_pandas()

    def to_spark(self, spark: Any) -> Any:
        """All rows as a DataFrame of this Spark session, one task per file; all executors must be able to open the URL.

        Raises TypeNotSupported naming a column whose type Spark lacks.
        """
        from forkpoint.state_processor.frames import frame_of

        return frame_of(spark, self)

    def rows(self) -> Iterator[Any]:
        """The rows as NamedTuples of Python objects, with the state's parts: ``entry.key``, ``entry.value``, …"""
        for table in self.tables():
            yield from entries_of(self.layout, table)

    def get(self, key: Any) -> Any:
        """The content of one key: a value, a list or a dict; None if there is none. For windows a dict of these by window,
        for timers the rows. Reads only the file with the key's group. Raises TypeNotSupported if it is not a valid key."""
        tables = list(self.of_key(key))
        if self.is_timers:
            return [entry for table in tables for entry in entries_of(self.layout, table)]
        found: dict[str, list[Any]] = {}
        for table in tables:
            for role, objects in objects_of(self.layout, table).items():
                found.setdefault(role, []).extend(objects)
        return _content(self.kind, found)

    def of_key(self, key: Any) -> Iterator[pa.Table]:
        """The rows of one key. Raises as ``get`` does."""
        if self.key_type is None:
            raise ConfigError(f"{self.saved[0].info.where} is operator state: it has no keys; use rows()")
        group = key_group(key_hash(key, self.key_type), self.opened.savepoint.max_parallelism)
        wanted = self.key_type.encode_key(key)
        for table in self.tables((group, group + 1)):
            keys = Rows(self.layout, table).encoded("key")
            places = [i for i, each in enumerate(keys) if each == wanted]
            if places:
                yield table.take(pa.array(places))


def _content(kind: str, found: Mapping[str, Sequence[Any]]) -> Any:
    values = found.get("value", ())
    if not values:
        return None
    if kind == "map":
        return dict(zip(found["map_key"], values, strict=True))
    if "namespace" not in found:
        return list(values) if kind == "list" else values[0]
    if kind != "list":
        return dict(zip(found["namespace"], values, strict=True))
    lists: dict[Any, list[Any]] = {}
    for namespace, value in zip(found["namespace"], values, strict=True):
        lists.setdefault(namespace, []).append(value)
    return lists
