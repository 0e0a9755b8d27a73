"""DeltaSink: writes rows to a Delta Lake table, exactly once.

Writers put data files below the table's directory. Readers ignore them until the table's log names them. The commit of an epoch
is one transaction of the log. It also sets the version of the sink's own application to the epoch's number (``txn`` in Delta's
protocol). If two transactions set it, the log refuses the later one, so an epoch is never added twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa

from forkpoint import extras
from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.contract.sink import Committer, CommitterContext
from forkpoint.errors import ConfigError, NotFound
from forkpoint.types.variables import T_contra
from forkpoint_lakehouse.columns import DELETED, check_case, complete
from forkpoint_lakehouse.committer import TableCommitter
from forkpoint_lakehouse.delta_errors import raising_errors
from forkpoint_lakehouse.delta_files import DeltaFiles, DeltaPlace, absolute
from forkpoint_lakehouse.format import DataFiles, TableFormat
from forkpoint_lakehouse.sink import Mode, TableSink, check_options, column_names

_SUPPORTED_FEATURES = {
    "appendOnly",
    "invariants",
    "changeDataFeed",
    "timestampNtz",
    "v2Checkpoint",
    "deletionVectors",
    "domainMetadata",
    "inCommitTimestamp",
    "vacuumProtocolCheck",
}


_UNSUPPORTED_METADATA = ("delta.generationExpression", "delta.identity.", "delta.invariants", "delta.columnMapping.")


class DeltaSink(TableSink[T_contra]):
    """Writes records to a Delta Lake table, in one transaction of its log per epoch or per ``commit_every``.

    ``uri``: a directory or URL (``s3://…``, ``gs://…``, ``abfss://…``). The table is created if it does not exist.
    ``mode``: ``"append"`` adds a row per element. ``"upsert"`` replaces the row with the element's ``key``; elements that are row
    changes (`DebeziumJsonDeserializationSchema`) are applied. The last change of a key in an epoch wins.
    ``partition_by``: the partition columns of a new table.
    ``schema_evolution``: whether to add the elements' columns that the table lacks.
    ``commit_every``: commit epochs together once the first has waited for this long, in files as large as that allows. By
    default, every epoch is committed immediately, by itself.
    ``storage_options``: the object store's options, under delta-rs's names, such as ``{"AWS_REGION": "eu-central-1"}``.

    Raises ConfigError if elements are not records, or if a column is missing or does not fit the table.
    """

    def __init__(
        self,
        uri: str,
        *,
        mode: Mode = "append",
        key: Sequence[str] | str = (),
        partition_by: Sequence[str] | str = (),
        schema_evolution: bool = True,
        commit_every: timedelta | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        extras.require("deltalake", "DeltaSink")
        key, by = column_names("DeltaSink", "key", key), column_names("DeltaSink", "partition_by", partition_by)
        check_options("DeltaSink", mode, key, commit_every)
        table = _Table(absolute(str(uri)), by, schema_evolution, dict(storage_options or {}))
        super().__init__(table, mode, key, commit_every)


_CACHE_SECONDS = 300.0
_CACHE_TABLES = 8
_cache: dict[Any, tuple[float, Any]] = {}
"""This process's cached tables, with the time of loading. A table is taken out while it is updated."""


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
    def _format(self) -> str:
        return "Delta Lake"

    @property
    def place(self) -> DeltaPlace:
        return DeltaPlace(self.uri, self.storage_options)

    def create_committer(self, context: CommitterContext, key: Sequence[str]) -> Committer:
        return _DeltaCommitter(context, self, key)

    def load(self) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with raising_errors(self.name):
            try:
                return DeltaTable(self.uri, storage_options=self.storage_options)
            except TableNotFoundError:
                return None

    def _load_to_write(self) -> Any:
        """Cache the table in this process and read only the new part of its log, because loading a table with many files is slow.
        A forked process loads it again: a fork ends the client's threads."""
        key = (os.getpid(), self.uri, tuple(sorted(self.storage_options.items())))
        now, (since, table) = time.monotonic(), _cache.pop(key, (0.0, None))
        if table is not None and now - since < _CACHE_SECONDS:
            try:
                table.update_incremental()
            except Exception:  # it may have been recreated
                table = None
        if table is None or now - since >= _CACHE_SECONDS:
            since, table = now, self.load()
        if table is not None:
            _cache[key] = (since, table)
            while len(_cache) > _CACHE_TABLES:
                _cache.pop(next(iter(_cache)), None)
        return table

    def _create(self, columns: pa.Schema) -> Any:
        from deltalake import DeltaTable

        with raising_errors(self.name):
            return DeltaTable.create(
                self.uri,
                columns,
                mode="ignore",
                partition_by=list(self.partition_by),
                storage_options=self.storage_options,
            )

    def _partition_columns(self) -> Sequence[str]:
        return self.partition_by

    def _check(self, table: Any) -> None:
        metadata = table.metadata()
        features = set(table.protocol().writer_features or ())
        demands = sorted(features - _SUPPORTED_FEATURES)
        demands += sorted(k for k in metadata.configuration if k.startswith("delta.constraints."))
        if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
            demands.append("columnMapping")
        demands += sorted(
            {key for field in table.schema().fields for key in field.metadata if key.startswith(_UNSUPPORTED_METADATA)}
        )
        if demands:
            raise ConfigError(
                f"{self.name} requires {', '.join(demands)} of its writers, which DeltaSink does not support; drop the feature "
                "or constraint, or write to another table"
            )

    def _check_names(self, rows: pa.Schema, present: pa.Schema) -> None:
        check_case(rows, present, self.name)

    def _check_partitions(self, rows: pa.Schema) -> None:
        super()._check_partitions(rows)
        for column in self.partition_by:
            if pa.types.is_binary(rows.field(column).type):
                raise ConfigError(
                    f"{self.name} cannot be partitioned by column {column!r}, which holds bytes; choose another in partition_by="
                )

    def columns(self, table: Any) -> pa.Schema:
        return pa.schema(table.schema().to_arrow())

    def _add_columns(self, table: Any, columns: pa.Schema) -> None:
        from deltalake import Schema

        with raising_errors(self.name):
            table.alter.add_columns(Schema.from_arrow(columns).fields)

    def _simple_type(self, of: pa.DataType) -> pa.DataType | None:
        types = pa.types
        plain = (
            types.is_signed_integer,
            types.is_floating,
            types.is_boolean,
            types.is_string,
            types.is_binary,
            types.is_date32,
            types.is_decimal128,
        )
        return of if any(test(of) for test in plain) else None

    def _files(self, table: Any) -> DataFiles:
        return DeltaFiles(self.name, self.place, self.columns(table), table.metadata().partition_columns)


class _DeltaCommitter(TableCommitter):
    """Keeps the table open between commits and reads the new part of its log before a commit."""

    def __init__(self, context: CommitterContext, table: _Table, key: Sequence[str]) -> None:
        super().__init__(context, table, key)
        self._place = table.place
        self._application = f"forkpoint-{context.job}-{context.uid}-{context.incarnation}"

    def _committed(self) -> int:
        if self._table is None:
            self._table = self._format.load()
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

        if gone := self._place.missing([each["path"] for each in output.committables]):
            raise NotFound(f"{self._name} has no file {gone[0]}")
        actions = [
            AddAction(each["path"], each["size"], each["partition"], each["written_ms"], True, each["stats"])
            for each in output.committables
        ]
        table = self._table
        with raising_errors(self._name):
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                table.metadata().partition_columns,
                commit_properties=self._properties(output.epoch),
            )

    def _merge(self, output: EpochOutput) -> None:
        changes = self._changes(output)
        rows = complete(changes, self._format.columns(self._table)).append_column(DELETED, changes.column(DELETED))
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
        self._place.remove(paths)
