"""Tables of saved state: of a job's last committed epoch, while it runs or later, or of one of its savepoints."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, Self

import pyarrow as pa
from pyarrow import parquet

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.config_file import DEFAULT_STATE_ROOT, state_root
from forkpoint.contract.sink import stage, staged
from forkpoint.contract.source import JSON, Source, SourceContext, SourceReader, SplitEnumerator, SplitRange
from forkpoint.errors import ConfigError, JobNotFound, SavepointNotFound
from forkpoint.relational.changes import row_type
from forkpoint.relational.types import BYTES, STRING, Field, Schema, SqlType, sql_type
from forkpoint.savepoint.catalog.listing import find_savepoint
from forkpoint.savepoint.format.layout import Part, UniqueNames
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from forkpoint.savepoint.inspect.live import newest_state, while_gone
from forkpoint.savepoint.inspect.reader import SavepointReader, StateReader
from forkpoint.savepoint.inspect.state_rows import StateCollection, StateRows
from forkpoint.sql.errors import did_you_mean
from forkpoint.storage.base import open_storage
from forkpoint.storage.places import absolute
from forkpoint.table.connectors.options import TableOptions
from forkpoint.types import TypeInformation

_HIDDEN = ("key_group",)
_TIMERS = "timers"
_DERIVED = re.compile(r"^(by |left\.|right\.|\$)+")
"""What the names of columns in plans begin with: keys of inner queries, sides of joins, what windows add."""


def saved_state(root: str, job: str, savepoint: str | None = None) -> StateCollection[Any]:
    """The state of a job: of this savepoint (a path, id or label), else its last committed epoch, else its newest savepoint.
    Raises JobNotFound and SavepointNotFound."""
    storage = open_storage(root)
    if savepoint is not None:
        is_path = "/" in savepoint
        return SavepointReader(open_savepoint(absolute(savepoint)) if is_path else find_savepoint(storage, job, savepoint))
    try:
        return newest_state(storage, job)
    except JobNotFound:
        try:
            return SavepointReader(find_savepoint(storage, job))
        except SavepointNotFound:
            pass
        raise


def columns_of(state: StateRows) -> dict[Field, str]:
    """The columns of a state in SQL, each with its name in the state's files. Of a query, keys have the names of its columns."""
    names, key = UniqueNames(), _query_key(state.infos[0].definition)
    found = {}
    for part in state.layout.parts:
        for name, field, of in zip(part.names, part.fields, _types(part), strict=True):
            if part.role in _HIDDEN:
                continue
            own = name
            if key is not None and part.role in ("key", "map_key"):
                own = name.removeprefix(f"{part.role}_") if part.type.fields else key if part.role == "key" else name
            found[Field(names.first_free(own, name), _sql_type(of, field.type))] = name
    return found


def _types(part: Part) -> Sequence[TypeInformation]:
    return [each.type for each in part.type.fields or ()] or [part.type]


def _sql_type(of: TypeInformation, arrow: pa.DataType) -> SqlType:
    """A type that SQL lacks is a text, if columns have it as such, or the bytes that are stored."""
    found = sql_type(of)
    if found is not None:
        return found.with_null()
    return STRING if pa.types.is_string(arrow) or pa.types.is_large_string(arrow) else BYTES


def _query_key(definition: Any) -> str | None:
    """The name of the first key of a query's state; None if the state is no query's. Other keys have their names in the state."""
    if not isinstance(definition, Mapping):
        return None
    node = definition.get("aggregate") or definition.get("node") or {}
    first = (node.get("keys") or [{}])[0]  # of a join, a pair
    column = first[0] if isinstance(first, list) else first.get("of", first)
    return _DERIVED.sub("", str(column.get("name", "key")))


def table_name(state: StateRows) -> str:
    """The name of a state's table: the operator's uid and the state's name, as SQL writes names without quotes."""
    return "".join(sign if sign.isalnum() and sign.isascii() else "_" for sign in f"{state.uid}_{state.name}")


def state_source(options: TableOptions) -> Source[Any]:
    root = options.get("state-root") or state_root() or DEFAULT_STATE_ROOT
    place = StatePlace(
        absolute(root), options.required("job"), options.required("operator"), options.required("state"), options.get("savepoint")
    )
    return StateSource(place, options.table.schema)


@dataclass(frozen=True)
class StatePlace:
    """Where a state is. ``savepoint``: None for the job's newest state."""

    root: str
    job: str
    operator: str
    state: str
    savepoint: str | None

    def opened(self) -> tuple[str | None, StateRows]:
        """The state, and the URL of its savepoint if it is one's."""
        saved = saved_state(self.root, self.job, self.savepoint)
        return (saved.path if isinstance(saved, SavepointReader) else None), _state_of(saved, self)


def _state_of(saved: StateCollection[Any], place: StatePlace) -> Any:
    own = [each.name for each in saved.states if each.uid == place.operator and not each.is_timers]
    if place.state == _TIMERS and place.state not in own:
        return saved.timers(place.operator)
    return saved.state(place.operator, place.state)


@dataclass(frozen=True)
class StateSource(Source[Any]):
    """The rows of a state, once: a savepoint's files, or a copy of a job's newest state, which the job may soon remove."""

    place: StatePlace
    schema: Schema
    context: SourceContext | None = None

    def output_type(self) -> TypeInformation[Any]:
        return row_type(self.schema)

    def for_job(self, context: SourceContext) -> Self:
        return replace(self, context=context)

    @property
    def bounded(self) -> bool:
        return True

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        assert self.context is not None
        return _Enumerator(self, self.context, position or {"next": 0, "of": None, "savepoint": None})

    def create_reader(self) -> SourceReader[Any]:
        return _Reader(self)

    def rows(self, state: StateRows, table: pa.Table) -> pa.RecordBatch:
        """The table's columns. Raises ConfigError for one that the state does not have."""
        known = {field.name: source for field, source in columns_of(state).items()}
        missing = next((field.name for field in self.schema if field.name not in known), None)
        if missing is not None:
            raise ConfigError(f"{state.infos[0].where} has no column {missing!r}; {did_you_mean(missing, known)}")
        of = row_type(self.schema).arrow_schema
        columns = [table.column(known[field.name]).combine_chunks().cast(field.type) for field in of]
        return pa.RecordBatch.from_arrays(columns, schema=of)


class _Enumerator(SplitEnumerator):
    """Position: the savepoint that is read, if it is one, and the next of its files. A copy is one file."""

    def __init__(self, source: StateSource, context: SourceContext, position: JSON) -> None:
        self._source, self._context, self._position = source, context, position
        self._copies: list[str] = []

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        if self.finished:
            return []
        place, resumed = self._source.place, self._position["savepoint"]
        if resumed is not None:
            place = replace(place, savepoint=resumed)
        return while_gone(lambda: self._planned(place, max_rows))

    def _planned(self, place: StatePlace, max_rows: int) -> list[SplitRange]:
        savepoint, state = place.opened()
        if not isinstance(state, StateReader):
            self._position = {"next": 1, "of": 1, "savepoint": None}
            return [self._copied(state)]
        files = [file.entries for _, file in state.parts()]
        first = last = self._position["next"]
        while last < len(files) and (last == first or sum(files[first : last + 1]) <= max_rows):
            last += 1
        self._position = {"next": last, "of": len(files), "savepoint": savepoint}
        return [
            SplitRange("state", piece, at, at + 1, files[at], {"savepoint": savepoint})
            for piece, at in enumerate(range(first, last))
        ]

    def _copied(self, state: StateRows) -> SplitRange:
        rows = pa.Table.from_batches(
            [self._source.rows(state, table) for table in state.tables()], self._source.output_type().arrow_schema
        )
        file = BytesIO()
        parquet.write_table(rows, file)
        path = f"{JobPaths(self._context.job).received(self._context.uid)}/{uuid.uuid4().hex}.parquet"
        stored = stage(self._context.state_root, path, file.getvalue())
        self._copies += [stored["path"]] if "path" in stored else []
        return SplitRange("state", 0, 0, 1, rows.num_rows, {"copy": stored, "root": self._context.state_root})

    @property
    def position(self) -> JSON:
        return self._position

    @property
    def finished(self) -> bool:
        return self._position["of"] is not None and self._position["next"] >= self._position["of"]

    def committed(self, position: JSON) -> None:
        if position["of"] is not None:
            self.close()

    def close(self) -> None:
        if self._copies:
            open_storage(self._context.state_root).delete_all(self._copies)
        self._copies = []


class _Reader(SourceReader[Any]):
    def __init__(self, source: StateSource) -> None:
        self._source = source

    def read(self, range: SplitRange) -> Iterator[pa.RecordBatch]:
        info = range.info
        if "copy" in info:
            yield from parquet.read_table(BytesIO(staged(info["root"], info["copy"]))).to_batches()
            return
        state = _state_of(SavepointReader.read(info["savepoint"]), self._source.place)
        for part in state.parts()[range.start : range.end]:
            for table in state.part(*part):
                yield self._source.rows(state, table)
