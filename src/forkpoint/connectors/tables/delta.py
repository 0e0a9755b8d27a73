"""DeltaSink: rows to a Delta Lake table, exactly once.

Writers put data files below the table's directory, where nobody reads them before the table's log names them. The commit of an
epoch is one transaction of the log. It also sets the version of an application of the sink's own to the epoch's number
(``txn`` in Delta's protocol): of two that set it, the log refuses the later one, so an epoch is never added twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from forkpoint import extras
from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.base import SinkContext, SinkWriter
from forkpoint.connectors.committing import Committer, CommitterContext, CommittingSink
from forkpoint.connectors.tables.columns import DELETED, complete, new_columns
from forkpoint.connectors.tables.committing import Conflict, TableCommitter
from forkpoint.connectors.tables.delta_errors import raising_errors
from forkpoint.connectors.tables.delta_files import DeltaFiles, DeltaPlace, absolute
from forkpoint.connectors.tables.writing import AppendWriter, DataFiles, TableFormat, UpsertWriter
from forkpoint.errors import ConfigError, NotFound
from forkpoint.types.variables import T_contra

Mode = Literal["append", "upsert"]

_APPENDABLE = {
    "appendOnly", "invariants", "changeDataFeed", "timestampNtz", "v2Checkpoint", "deletionVectors", "domainMetadata",
    "inCommitTimestamp", "vacuumProtocolCheck",
}  # fmt: skip


_DEMANDING = ("delta.generationExpression", "delta.identity.", "delta.invariants", "delta.columnMapping.")


class DeltaSink(CommittingSink[T_contra]):
    """Writes records to a Delta Lake table, one transaction of its log for each epoch.

    ``uri``: a directory or URL (``s3://…``, ``gs://…``, ``abfss://…``). The table is created if there is none.
    ``mode``: ``"append"`` adds a row for each element; ``"upsert"`` puts each element in the place of the row with its ``key``,
    and elements that are changes of rows (`DebeziumJsonDeserializationSchema`) do what they say. The last change of a key in
    an epoch wins.
    ``partition_by``: the columns by whose values a new table's files are divided.
    ``schema_evolution``: whether the table gets columns that the elements have and it lacks.
    ``storage_options``: of the object store, by delta-rs's names, such as ``{"AWS_REGION": "eu-central-1"}``.

    Raises ConfigError if elements are no records, or a column is missing or does not fit the table.
    """

    def __init__(
        self, uri: str, *, mode: Mode = "append", key: Sequence[str] = (), partition_by: Sequence[str] = (),
        schema_evolution: bool = True, storage_options: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        extras.require("deltalake", "DeltaSink")
        check_options("DeltaSink", mode, key, partition_by)
        self._table = _Table(absolute(str(uri)), tuple(partition_by), schema_evolution, dict(storage_options or {}))
        self._mode = mode
        self._key = tuple(key)

    def create_writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        if self._mode == "upsert":
            return UpsertWriter(context, self._table, self._key)
        return AppendWriter(context, self._table)

    def create_committer(self, context: CommitterContext) -> Committer:
        return _DeltaCommitter(context, self._table, self._key)


_KEPT_SECONDS = 300.0
_KEPT_TABLES = 8
_kept: dict[Any, tuple[float, Any]] = {}
"""This process's tables, by what identifies them, with the time since when. One is taken out while it is brought up to date."""


def check_options(sink: str, mode: Any, key: Any, partition_by: Any) -> None:
    """Raise ConfigError for options that make no sense."""
    if mode not in ("append", "upsert"):
        raise ConfigError(f'{sink}: mode={mode!r} is unknown; give "append" or "upsert"')
    for option, value in (("key", key), ("partition_by", partition_by)):
        if isinstance(value, str) or not all(isinstance(name, str) for name in value):
            raise ConfigError(f'{sink}: {option}={value!r} are no columns; give their names, such as {option}=("id",)')
    if mode == "upsert" and not key:
        raise ConfigError(f'{sink}: mode="upsert" needs the columns that identify a row; give key=("id",)')
    if mode == "append" and key:
        raise ConfigError(
            f'{sink}: key={tuple(key)!r} has no meaning with mode="append"; leave it out, or give mode="upsert"'
        )


@dataclass(frozen=True)
class _Table(TableFormat):
    uri: str
    partition_by: tuple[str, ...]
    schema_evolution: bool
    storage_options: dict[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        return f"Delta table {self.uri}"

    @property
    def place(self) -> DeltaPlace:
        return DeltaPlace(self.uri, self.storage_options)

    def load(self) -> Any:
        """The table's newest version; None if there is none."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with raising_errors(self.name):
            try:
                return DeltaTable(self.uri, storage_options=self.storage_options)
            except TableNotFoundError:
                return None

    def load_again(self) -> Any:
        """As ``load``; this process keeps the table, and reads only what is new of its log: a table with many files takes long.
        Not so after a fork, which ends the client's threads."""
        key = (os.getpid(), self.uri, tuple(sorted(self.storage_options.items())))
        now, (since, table) = time.monotonic(), _kept.pop(key, (0.0, None))
        if table is not None and now - since < _KEPT_SECONDS:
            try:
                table.update_incremental()
            except Exception:  # it may have been made anew
                table = None
        if table is None or now - since >= _KEPT_SECONDS:
            since, table = now, self.load()
        if table is not None:
            _kept[key] = (since, table)
            while len(_kept) > _KEPT_TABLES:
                _kept.pop(next(iter(_kept)), None)
        return table

    def open(self, rows: pa.Schema) -> DataFiles:
        table = self.load_again()
        if table is None:
            table = self._create(rows)
        present = _columns(table)
        if added := new_columns(rows, present, self.name, evolution=self.schema_evolution):
            self._add(table, added)
            table = self.load()
            present = _columns(table)
            new_columns(rows, present, self.name, evolution=False)
        _check_features(table, self.name)
        return DeltaFiles(self.name, self.place, present, table.metadata().partition_columns)

    def _create(self, rows: pa.Schema) -> Any:
        from deltalake import DeltaTable

        if missing := [name for name in self.partition_by if name not in rows.names]:
            raise ConfigError(
                f"{self.name}: the elements have no column {missing[0]!r} to partition by; their columns are "
                f"{', '.join(rows.names)}: correct partition_by="
            )
        schema = pa.schema([_delta_field(each, self.name) for each in rows])
        with raising_errors(self.name):
            return DeltaTable.create(
                self.uri,
                schema,
                mode="ignore",
                partition_by=list(self.partition_by),
                storage_options=self.storage_options,
            )

    def _add(self, table: Any, columns: Sequence[pa.Field]) -> None:
        """Add columns, unless another task has done so."""
        from deltalake import Schema

        schema = pa.schema([_delta_field(each, self.name) for each in columns])
        for _ in range(5):
            try:
                with raising_errors(self.name):
                    table.alter.add_columns(Schema.from_arrow(schema).fields)
                return
            except Conflict:
                table = self.load()
                schema = pa.schema([each for each in schema if each.name not in _columns(table).names])
                if not len(schema):
                    return


def _columns(table: Any) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _check_features(table: Any, name: str) -> None:
    """Raise ConfigError if the table demands of its writers what this one does not do."""
    metadata = table.metadata()
    features = set(table.protocol().writer_features or ())
    demands = sorted(features - _APPENDABLE)
    demands += sorted(k for k in metadata.configuration if k.startswith("delta.constraints."))
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        demands.append("columnMapping")
    demands += sorted({key for field in table.schema().fields for key in field.metadata if key.startswith(_DEMANDING)})
    if demands:
        raise ConfigError(
            f"{name} demands {', '.join(demands)} of its writers, which DeltaSink does not do; drop the feature or constraint, "
            "or write to another table"
        )


def _delta_field(of: pa.Field, table: str) -> pa.Field:
    return pa.field(of.name, _delta_type(of.type, of.name, table))


def _delta_type(of: pa.DataType, column: str, table: str) -> pa.DataType:
    """The type of a new column. Raises ConfigError for what Delta Lake has no type for."""
    types = pa.types
    if types.is_struct(of):
        return pa.struct([pa.field(f.name, _delta_type(f.type, f"{column}.{f.name}", table)) for f in of])
    if types.is_list(of) or types.is_large_list(of):
        return pa.list_(_delta_type(of.value_type, column, table))
    if types.is_map(of):
        return pa.map_(_delta_type(of.key_type, column, table), _delta_type(of.item_type, column, table))
    if types.is_timestamp(of):
        return pa.timestamp("us", "UTC" if of.tz else None)
    plain = (
        types.is_signed_integer, types.is_floating, types.is_boolean, types.is_string, types.is_binary, types.is_date32,
        types.is_decimal128,
    )  # fmt: skip
    if any(test(of) for test in plain):
        return of
    raise ConfigError(f"{table}: column {column!r} is {of}, which Delta Lake has no type for; map it to a str or int")


class _DeltaCommitter(TableCommitter):
    """Keeps the table open between commits, and reads what is new of its log before each."""

    def __init__(self, context: CommitterContext, table: _Table, key: Sequence[str]) -> None:
        super().__init__(context, table.name)
        self._description = table
        self._key = list(key)
        self._table: Any = None
        self._application = f"forkpoint-{context.job}-{context.uid}-{context.incarnation}"

    def _committed(self) -> int:
        if self._table is None:
            self._table = self._description.load()
        else:
            with raising_errors(self._name):
                self._table.update_incremental()
        if self._table is None:
            return 0
        with raising_errors(self._name):
            return int(self._table.transaction_version(self._application) or 0)

    def _commit(self, output: EpochOutput) -> None:
        if self._table is None:
            raise NotFound(f"{self._name} is not there any more")
        if self._key:
            self._merge(output)
        else:
            self._append(output)

    def _properties(self, epoch: int) -> Any:
        from deltalake import CommitProperties, Transaction

        return CommitProperties(
            app_transactions=[Transaction(self._application, epoch)],
            custom_metadata={"forkpoint.job": self._context.job, "forkpoint.epoch": str(epoch)},
        )

    def _append(self, output: EpochOutput) -> None:
        from deltalake.transaction import AddAction

        if gone := self._description.place.missing([each["path"] for each in output.committables]):
            raise NotFound(f"{self._name} has no file {gone[0]}")
        actions = [
            AddAction(each["path"], each["size"], each["partition"], each["written_ms"], True, each["stats"])
            for each in output.committables
        ]
        table = self._table
        with raising_errors(self._name):
            table.create_write_transaction(
                actions, "append", table.schema(), table.metadata().partition_columns,
                commit_properties=self._properties(output.epoch),
            )  # fmt: skip

    def _merge(self, output: EpochOutput) -> None:
        changes = self._changes(output, self._key)
        rows = complete(changes, _columns(self._table)).append_column(DELETED, changes.column(DELETED))
        same = " AND ".join(f"target.`{name}` = source.`{name}`" for name in self._key)
        with raising_errors(self._name):
            merger = self._table.merge(
                rows,
                same,
                source_alias="source",
                target_alias="target",
                commit_properties=self._properties(output.epoch),
            )
            merger = merger.when_matched_delete(f"source.{DELETED}")
            merger = merger.when_matched_update_all(f"NOT source.{DELETED}", except_cols=[DELETED])
            merger.when_not_matched_insert_all(f"NOT source.{DELETED}", except_cols=[DELETED]).execute()

    def _remove(self, paths: Iterable[str]) -> None:
        self._description.place.remove(paths)

    def close(self) -> None:
        self._table = None
