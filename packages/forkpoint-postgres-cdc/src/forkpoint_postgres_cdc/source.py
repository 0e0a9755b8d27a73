"""PostgreSQL tables as a source of changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

from forkpoint.connectors.formats.changes import change_type
from forkpoint.contract.source import JSON, Source, SourceContext, SourceReader, SplitEnumerator
from forkpoint.errors import ConfigError
from forkpoint.types import TypeInformation, TypeLike, type_of
from forkpoint.types.kinds.records import RecordType
from forkpoint_postgres_cdc.catalog import read_tables, row_type
from forkpoint_postgres_cdc.connection import Database
from forkpoint_postgres_cdc.enumerator import PostgresEnumerator
from forkpoint_postgres_cdc.errors import naming, raising_errors
from forkpoint_postgres_cdc.feed import ReadSettings
from forkpoint_postgres_cdc.position import Position
from forkpoint_postgres_cdc.reader import PostgresReader
from forkpoint_postgres_cdc.slot import drop_slot, slot_name


@dataclass(frozen=True)
class PostgresSource(Source[Any]):
    """Reads the rows of PostgreSQL tables, then every change, exactly once and in commit order.

    Elements are ``Change(kind, before, after, database, table, time)``; the documentation of formats describes the fields.

    ``conninfo``: libpq's connection string or URL. ``tables``: names as in SQL; ``Change.table`` has them as given here.
    ``publication``: a publication of these tables; create it with ``CREATE PUBLICATION … FOR TABLE …``. ``type_info``: the row
    type, with a field for each needed column; by default, the catalog's columns when the program starts.

    ``snapshot``: whether to start with the existing rows. ``split_size``: how many of these a task reads at once.
    ``is_bounded``: whether to end after the changes that exist once the rows have been read. ``on_truncate``: whether a TRUNCATE
    fails the job or is ignored. ``on_missing_value``: whether a large value that the server does not send, because an update did
    not change it, fails the job or is read as None. REPLICA IDENTITY FULL makes the server send it.
    """

    conninfo: str = field(repr=False)
    tables: Sequence[str]
    publication: str
    type_info: TypeLike[Any] | None = None
    snapshot: bool = True
    split_size: int = 10_000
    is_bounded: bool = False
    on_truncate: Literal["fail", "ignore"] = "fail"
    on_missing_value: Literal["fail", "none"] = "fail"
    slot: str | None = field(default=None, init=False)
    uid: str | None = field(default=None, init=False)

    default_limit = 100_000

    def __post_init__(self) -> None:
        if isinstance(self.tables, str) or not self.tables or len(set(self.tables)) < len(self.tables):
            example = (
                [self.tables] if isinstance(self.tables, str) else list(dict.fromkeys(self.tables or ())) or ["public.orders"]
            )
            raise ConfigError(f"PostgresSource: tables is {self.tables!r}; give a list of names, each once, say {example}")
        for name, value, allowed in (
            ("on_truncate", self.on_truncate, ("fail", "ignore")),
            ("on_missing_value", self.on_missing_value, ("fail", "none")),
        ):
            if value not in allowed:
                raise ConfigError(f"PostgresSource: {name} is {value!r}; give {allowed[0]!r} or {allowed[1]!r}")
        if self.split_size < 1:
            raise ConfigError(f"PostgresSource: split_size is {self.split_size}; give at least 1")
        object.__setattr__(self, "tables", tuple(self.tables))
        if self.type_info is not None and not isinstance(type_of(self.type_info), RecordType):
            raise ConfigError(f"PostgresSource: type_info is {self.type_info!r}; give a record type, say a NamedTuple")

    def output_type(self) -> TypeInformation[Any]:
        return change_type(self._row)

    @cached_property
    def _row(self) -> RecordType:
        if self.type_info is not None:
            given = type_of(self.type_info)
            assert isinstance(given, RecordType)
            return given
        database = Database(self.conninfo)
        with naming(self.uid), raising_errors(database.place), database.connect() as connection:
            return row_type(read_tables(connection, self.tables))

    @property
    def bounded(self) -> bool:
        return self.is_bounded

    def for_job(self, context: SourceContext) -> Self:
        named = replace(self)
        object.__setattr__(named, "uid", context.uid)
        object.__setattr__(named, "slot", slot_name(context.job, context.uid, context.state_root))
        object.__setattr__(named, "_row", self._row)
        return named

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        if self.slot is None:
            raise ConfigError("PostgresSource: its slot is named after its job, but it has no job; pass it to from_source(…)")
        reading = ReadSettings(
            self.uid,
            Database(self.conninfo),
            self.tables,
            self.publication,
            self.slot,
            self._row,
            self.snapshot,
            self.split_size,
            self.is_bounded,
            self.on_truncate == "fail",
            self.type_info is None,
        )
        with naming(self.uid):
            return PostgresEnumerator(reading, Position.from_json(position))

    def create_reader(self) -> SourceReader[Any]:
        with naming(self.uid):
            return PostgresReader(
                self.uid,
                Database(self.conninfo),
                self._row,
                strict=self.type_info is None,
                fails=self.on_missing_value == "fail",
            )

    def discard(self) -> None:
        if self.slot is not None:
            drop_slot(Database(self.conninfo), self.slot, self.uid)
