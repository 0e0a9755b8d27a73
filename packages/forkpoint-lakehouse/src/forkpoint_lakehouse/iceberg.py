"""IcebergSink: writes rows to an Apache Iceberg table, exactly once.

Writers put data files below the table's location. Readers ignore them until a snapshot names them. The commit of an epoch is one
transaction: a snapshot with the epoch's files, and a property of the table with the epoch's number. It requires that the table's
branch has not changed since that number was read. So if an epoch is committed twice, the catalog refuses the later commit.
"""

from __future__ import annotations

import functools
import json
import os
import re
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
from forkpoint_lakehouse.committer import TableCommitter
from forkpoint_lakehouse.format import DataFiles, TableFormat
from forkpoint_lakehouse.iceberg_errors import raising_errors
from forkpoint_lakehouse.iceberg_files import IcebergFiles, columns_of, missing_files, remove_files
from forkpoint_lakehouse.iceberg_merge import Rewrite, added, rewrite
from forkpoint_lakehouse.sink import Mode, TableSink, check_options, column_names

_TRANSFORM = re.compile(r"(year|month|day|hour|bucket|truncate)\((?:(\d+)\s*,\s*)?([^(),]+)\)")


class IcebergSink(TableSink[T_contra]):
    """Writes records to an Apache Iceberg table, in one transaction per epoch or per ``commit_every``.

    ``catalog_properties``: for pyiceberg's ``load_catalog``, such as ``{"type": "rest", "uri": "http://…"}``, with the catalog's
    ``"name"`` (by default "default"). ``table``: ``"namespace.name"``; it is created if it does not exist.
    ``mode``: ``"append"`` adds a row per element. ``"upsert"`` replaces the row with the element's ``key``; elements that are row
    changes (`DebeziumJsonDeserializationSchema`) are applied. The last change of a key in an epoch wins.
    ``partition_by``: a new table's partition columns or transforms, such as ``"day(time)"`` and ``"bucket(16, id)"``.
    ``schema_evolution``: whether to add the elements' columns that the table lacks.
    ``commit_every``: commit epochs together once the first has waited for this long, in files as large as that allows. By
    default, every epoch is committed immediately, by itself.

    Raises ConfigError if elements are not records, or if a column is missing or does not fit the table.
    """

    def __init__(
        self,
        catalog_properties: Mapping[str, str],
        table: str,
        *,
        mode: Mode = "append",
        key: Sequence[str] | str = (),
        partition_by: Sequence[str] | str = (),
        schema_evolution: bool = True,
        commit_every: timedelta | None = None,
    ) -> None:
        extras.require("pyiceberg", "IcebergSink")
        key, by = column_names("IcebergSink", "key", key), column_names("IcebergSink", "partition_by", partition_by)
        check_options("IcebergSink", mode, key, commit_every)
        if "." not in table.strip("."):
            raise ConfigError(f'IcebergSink: table {table!r} has no namespace; give "namespace.name"')
        for each in by:
            _parse_partition(each)
        super().__init__(_Table(dict(catalog_properties), table, by, schema_evolution), mode, key, commit_every)


@dataclass(frozen=True)
class _Table(TableFormat):
    catalog_properties: dict[str, str] = field(repr=False)
    identifier: str
    partition_by: tuple[str, ...]
    schema_evolution: bool

    @property
    def name(self) -> str:
        return f"Iceberg table {self.identifier}"

    @property
    def _format(self) -> str:
        return "Iceberg"

    def create_committer(self, context: CommitterContext, key: Sequence[str]) -> Committer:
        return _IcebergCommitter(context, self, key)

    def catalog(self) -> Any:
        from pyiceberg.exceptions import NotInstalledError

        try:
            return _catalog(json.dumps(self.catalog_properties, sort_keys=True), os.getpid())
        except (ValueError, NotInstalledError, ImportError) as error:
            raise ConfigError(
                f"{self.name}: the catalog's properties cannot be used: {error}. Correct them as for pyiceberg's load_catalog: "
                '"type" is "rest", "sql", "hive", "glue", "dynamodb" or "bigquery", each with its own properties'
            ) from error

    def load(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        with raising_errors(self.name):
            try:
                return self.catalog().load_table(self.identifier)
            except NoSuchTableError:
                return None

    def columns(self, table: Any) -> pa.Schema:
        return columns_of(table.metadata)

    def _create(self, columns: pa.Schema) -> Any:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
        from pyiceberg.transforms import parse_transform

        partitions = [_parse_partition(text) for text in self.partition_by]
        with raising_errors(self.name):
            catalog = self.catalog()
            catalog.create_namespace_if_not_exists(self.identifier.rpartition(".")[0])
            try:
                with catalog.create_table_transaction(self.identifier, columns) as creating:
                    if partitions:
                        with creating.update_spec() as spec:
                            for column, transform in partitions:
                                self._add_partition(spec, column, parse_transform(transform))
            except (TableAlreadyExistsError, CommitFailedException):  # another task was faster
                pass
            return catalog.load_table(self.identifier)

    def _add_partition(self, spec: Any, column: str, transform: Any) -> None:
        try:
            spec.add_field(column, transform)
        except ValueError as error:
            raise ConfigError(
                f"{self.name} cannot be partitioned by {transform} of column {column!r}: {error}. Correct partition_by="
            ) from error

    def _partition_columns(self) -> Sequence[str]:
        return [_parse_partition(text)[0] for text in self.partition_by]

    def _check(self, table: Any) -> None:
        if (kind := table.properties.get("write.format.default", "parquet").lower()) != "parquet":
            raise ConfigError(
                f"{self.name} requires files in the format {kind} (write.format.default), but IcebergSink writes Parquet; set "
                "the property to parquet, or write to another table"
            )

    def _add_columns(self, table: Any, columns: pa.Schema) -> None:
        with raising_errors(self.name), table.update_schema() as update:
            update.union_by_name(columns)

    def _simple_type(self, of: pa.DataType) -> pa.DataType | None:
        types = pa.types
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
        return of if any(test(of) for test in plain) else None

    def _files(self, table: Any) -> DataFiles:
        return IcebergFiles(table, self.name)


def load_table(catalog_properties: Mapping[str, str], identifier: str) -> Any:
    """The table as it is now; None if there is none."""
    return _Table(dict(catalog_properties), identifier, (), False).load()


@functools.lru_cache(maxsize=16)
def _catalog(properties: str, process: int) -> Any:
    """A catalog's client. Depends on the process, because connections do not survive a fork."""
    from pyiceberg.catalog import load_catalog

    given = json.loads(properties)
    name = given.pop("name", "default")
    try:
        return load_catalog(name, **given)
    except Exception as error:
        if "already exists" not in str(error):
            raise
        return load_catalog(name, **given)  # another process has just created the tables of the catalog's database


def _parse_partition(text: str) -> tuple[str, str]:
    """The column and the transform's name in Iceberg's specification. Raises ConfigError."""
    match = _TRANSFORM.fullmatch(text.strip())
    if match is None and (unknown := re.fullmatch(r"\w+\((?:.*,)?([^,]*)\)", text.strip())):
        raise ConfigError(
            f"IcebergSink: partition_by={text!r} is not a transform; there are year, month, day, hour, bucket and truncate, as "
            f'in "day({unknown[1].strip()})" and "bucket(16, {unknown[1].strip()})"'
        )
    if match is None:
        return text, "identity"
    transform, width, column = match[1], match[2], match[3].strip()
    if (transform in ("bucket", "truncate")) != (width is not None):
        raise ConfigError(
            f'IcebergSink: partition_by={text!r} is not a transform; give "bucket(16, {column})", "truncate(4, {column})" or '
            f'"day({column})"'
        )
    return column, transform if width is None else f"{transform}[{width}]"


class _IcebergCommitter(TableCommitter):
    """Reads the table's metadata before a commit."""

    def __init__(self, context: CommitterContext, table: _Table, key: Sequence[str]) -> None:
        super().__init__(context, table, key)
        self._catalog = table.catalog
        self._identifier = table.identifier
        self._property = f"forkpoint.{context.job}.{context.uid}.{context.incarnation}.epoch"

    def _committed(self) -> int:
        self._table = self._format.load()
        return 0 if self._table is None else int(self._table.properties.get(self._property, 0))

    def _commit(self, output: EpochOutput) -> None:
        from pyiceberg.exceptions import CommitFailedException

        with raising_errors(self._name):
            if self._table is None:
                self._catalog().load_table(self._identifier)  # raises what is missing
            table = _without_retries(self._table)
            paths = [each["path"] for each in output.committables if "path" in each]
            if gone := missing_files(table.io, paths):
                raise NotFound(f"{self._name} has no file {gone[0]}")
            files = rewrite(table, self._changes(output), self._key) if self._key else added(table, output.committables)
            try:
                self._replace(table, output.epoch, files)
            except CommitFailedException:
                self._refused += files.written
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


def _without_retries(table: Any) -> Any:
    """Disable the table's commit retries: others may have committed the same epoch in the meantime."""
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table
