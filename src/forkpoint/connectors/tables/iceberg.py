"""IcebergSink: rows to an Apache Iceberg table, exactly once.

Writers put data files below the table's location, where nobody reads them before a snapshot names them. The commit of an epoch is
one transaction: a snapshot with the epoch's files, and a property of the table with the epoch's number. It demands that the
table's branch is still the one in which that number was read: of two commits of an epoch, the catalog refuses the later one.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from forkpoint import extras
from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.base import SinkContext, SinkWriter
from forkpoint.connectors.committing import Committer, CommitterContext, CommittingSink
from forkpoint.connectors.tables.columns import new_columns
from forkpoint.connectors.tables.committing import Conflict, TableCommitter
from forkpoint.connectors.tables.delta import Mode, check_options
from forkpoint.connectors.tables.iceberg_errors import raising_errors
from forkpoint.connectors.tables.iceberg_files import IcebergFiles, columns_of, missing_files, remove_files
from forkpoint.connectors.tables.iceberg_merge import Rewrite, added, rewrite
from forkpoint.connectors.tables.writing import AppendWriter, DataFiles, TableFormat, UpsertWriter
from forkpoint.errors import ConfigError, NotFound
from forkpoint.types.variables import T_contra

_TRANSFORM = re.compile(r"(year|month|day|hour|bucket|truncate)\((?:(\d+)\s*,\s*)?([^(),]+)\)")


class IcebergSink(CommittingSink[T_contra]):
    """Writes records to an Apache Iceberg table, one transaction for each epoch.

    ``catalog_properties``: of pyiceberg's ``load_catalog``, such as ``{"type": "rest", "uri": "http://…"}``, with the catalog's
    ``"name"`` ("default" if there is none). ``table``: ``"namespace.name"``; it is created if there is none.
    ``mode``: ``"append"`` adds a row for each element; ``"upsert"`` puts each element in the place of the row with its ``key``,
    and elements that are changes of rows (`DebeziumJsonDeserializationSchema`) do what they say. The last change of a key in
    an epoch wins.
    ``partition_by``: of a new table, columns or transforms of them, such as ``"day(time)"`` and ``"bucket(16, id)"``.
    ``schema_evolution``: whether the table gets columns that the elements have and it lacks.

    Raises ConfigError if elements are no records, or a column is missing or does not fit the table.
    """

    def __init__(
        self, catalog_properties: Mapping[str, str], table: str, *, mode: Mode = "append", key: Sequence[str] = (),
        partition_by: Sequence[str] = (), schema_evolution: bool = True,
    ) -> None:  # fmt: skip
        extras.require("pyiceberg", "IcebergSink")
        check_options("IcebergSink", mode, key, partition_by)
        if "." not in table.strip("."):
            raise ConfigError(f'IcebergSink: table {table!r} has no namespace; give "namespace.name"')
        for each in partition_by:
            _partition(each)
        self._table = _Table(dict(catalog_properties), table, tuple(partition_by), schema_evolution)
        self._mode = mode
        self._key = tuple(key)

    def create_writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        if self._mode == "upsert":
            return UpsertWriter(context, self._table, self._key)
        return AppendWriter(context, self._table)

    def create_committer(self, context: CommitterContext) -> Committer:
        return _IcebergCommitter(context, self._table, self._key)


@dataclass(frozen=True)
class _Table(TableFormat):
    catalog_properties: dict[str, str] = field(repr=False)
    identifier: str
    partition_by: tuple[str, ...]
    schema_evolution: bool

    @property
    def name(self) -> str:
        return f"Iceberg table {self.identifier}"

    def catalog(self) -> Any:
        return _catalog(json.dumps(self.catalog_properties, sort_keys=True), os.getpid())

    def load(self) -> Any:
        """The table as it is now; None if there is none."""
        from pyiceberg.exceptions import NoSuchTableError

        with raising_errors(self.name):
            try:
                return self.catalog().load_table(self.identifier)
            except NoSuchTableError:
                return None

    def open(self, rows: pa.Schema) -> DataFiles:
        table = self.load()
        if table is None:
            table = self._create(rows)
        if (kind := table.properties.get("write.format.default", "parquet").lower()) != "parquet":
            raise ConfigError(
                f"{self.name} wants files of the format {kind} (write.format.default), and IcebergSink writes Parquet; set the "
                "property to parquet, or write to another table"
            )
        present = columns_of(table.metadata)
        if added := new_columns(rows, present, self.name, evolution=self.schema_evolution):
            table = self._add(table, added)
            new_columns(rows, columns_of(table.metadata), self.name, evolution=False)
        return IcebergFiles(table, self.name)

    def _create(self, rows: pa.Schema) -> Any:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
        from pyiceberg.transforms import parse_transform

        partitions = [_partition(text) for text in self.partition_by]
        if missing := [column for column, _ in partitions if column not in rows.names]:
            raise ConfigError(
                f"{self.name}: the elements have no column {missing[0]!r} to partition by; their columns are "
                f"{', '.join(rows.names)}: correct partition_by="
            )
        schema = pa.schema([_iceberg_field(each, self.name) for each in rows])
        with raising_errors(self.name):
            catalog = self.catalog()
            catalog.create_namespace_if_not_exists(self.identifier.rpartition(".")[0])
            try:
                with catalog.create_table_transaction(self.identifier, schema) as creating:
                    if partitions:
                        with creating.update_spec() as spec:
                            for column, transform in partitions:
                                spec.add_field(column, parse_transform(transform))
            except (TableAlreadyExistsError, CommitFailedException):  # another task was faster
                pass
            return catalog.load_table(self.identifier)

    def _add(self, table: Any, columns: Sequence[pa.Field]) -> Any:
        """Add columns, unless another task has done so. Returns the table with them."""
        added = pa.schema([_iceberg_field(each, self.name) for each in columns])
        for tries_left in reversed(range(5)):
            try:
                with raising_errors(self.name):
                    with table.update_schema() as update:
                        update.union_by_name(added)
                    return self.load()
            except Conflict:
                if not tries_left:
                    raise
                table = self.load()
        raise AssertionError


@functools.lru_cache(maxsize=16)
def _catalog(properties: str, process: int) -> Any:
    """A catalog's client. Connections don't outlive a fork, hence the process."""
    from pyiceberg.catalog import load_catalog

    given = json.loads(properties)
    name = given.pop("name", "default")
    try:
        return load_catalog(name, **given)
    except Exception as error:
        if "already exists" not in str(error):
            raise
        return load_catalog(name, **given)  # a database, whose tables another process has just created


def _partition(text: str) -> tuple[str, str]:
    """The column and the transform, by its name in Iceberg's specification. Raises ConfigError."""
    match = _TRANSFORM.fullmatch(text.strip())
    if match is None:
        return text, "identity"
    transform, width, column = match[1], match[2], match[3].strip()
    if (transform in ("bucket", "truncate")) != (width is not None):
        raise ConfigError(
            f'IcebergSink: partition_by={text!r} is no transform; give "bucket(16, {column})", "truncate(4, {column})" or '
            f'"day({column})"'
        )
    return column, transform if width is None else f"{transform}[{width}]"


def _iceberg_field(of: pa.Field, table: str) -> pa.Field:
    return pa.field(of.name, _iceberg_type(of.type, of.name, table))


def _iceberg_type(of: pa.DataType, column: str, table: str) -> pa.DataType:
    """The type of a new column. Raises ConfigError for what Iceberg has no type for."""
    types = pa.types
    if types.is_struct(of):
        return pa.struct([pa.field(f.name, _iceberg_type(f.type, f"{column}.{f.name}", table)) for f in of])
    if types.is_list(of) or types.is_large_list(of):
        return pa.list_(_iceberg_type(of.value_type, column, table))
    if types.is_map(of):
        return pa.map_(_iceberg_type(of.key_type, column, table), _iceberg_type(of.item_type, column, table))
    if types.is_timestamp(of):
        return pa.timestamp("us", "UTC" if of.tz else None)
    if types.is_time(of):
        return pa.time64("us")
    if types.is_signed_integer(of):
        return of if of.bit_width >= 32 else pa.int32()
    plain = (
        types.is_floating,
        types.is_boolean,
        types.is_string,
        types.is_binary,
        types.is_date32,
        types.is_decimal128,
    )
    if any(test(of) for test in plain):
        return of
    raise ConfigError(f"{table}: column {column!r} is {of}, which Iceberg has no type for; map it to a str or int")


class _IcebergCommitter(TableCommitter):
    """Reads the table's metadata before each commit."""

    def __init__(self, context: CommitterContext, table: _Table, key: Sequence[str]) -> None:
        super().__init__(context, table.name)
        self._description = table
        self._key = list(key)
        self._table: Any = None
        self._property = f"forkpoint.{context.job}.{context.uid}.{context.incarnation}.epoch"

    def _committed(self) -> int:
        self._table = self._description.load()
        return 0 if self._table is None else int(self._table.properties.get(self._property, 0))

    def _commit(self, output: EpochOutput) -> None:
        from pyiceberg.exceptions import CommitFailedException

        with raising_errors(self._name):
            if self._table is None:
                self._description.catalog().load_table(self._description.identifier)  # says what is missing
            table = _once(self._table)
            paths = [each["path"] for each in output.committables if "path" in each]
            if gone := missing_files(table.io, paths):
                raise NotFound(f"{self._name} has no file {gone[0]}")
            if self._key:
                files = rewrite(table, self._changes(output, self._key), self._key)
            else:
                files = added(table, output.committables)
            try:
                self._replace(table, output.epoch, files)
            except CommitFailedException:  # so nothing was committed
                remove_files(table.io, files.written)
                raise
            remove_files(table.io, files.replaced)

    def _replace(self, table: Any, epoch: int, files: Rewrite) -> None:
        summary = {"job": self._context.job, "uid": self._context.uid, "epoch": str(epoch)}
        with table.transaction() as transaction:
            transaction.set_properties({self._property: str(epoch)})
            update = transaction.update_snapshot({f"forkpoint.{name}": value for name, value in summary.items()})
            with update.overwrite() if files.removed else update.fast_append() as snapshot:
                for file in files.removed:
                    snapshot.delete_data_file(file)
                for file in files.added:
                    snapshot.append_data_file(file)

    def _remove(self, paths: Iterable[str]) -> None:
        if self._table is not None:
            with raising_errors(self._name):
                remove_files(self._table.io, paths)

    def close(self) -> None:
        self._table = None


def _once(table: Any) -> Any:
    """The table, whose commits are not repeated upon what others have committed meanwhile: that may be the same epoch."""
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table
