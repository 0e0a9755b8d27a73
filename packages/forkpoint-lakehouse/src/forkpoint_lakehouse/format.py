"""The interface of table formats for table sinks: create a table, add columns, write and commit data files."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from forkpoint.contract.sink import Committer, CommitterContext
from forkpoint.contract.source import JSON
from forkpoint.errors import ConfigError, ForkpointError
from forkpoint_lakehouse.columns import check_key_columns, new_columns

log = logging.getLogger("forkpoint")

_TRIES = 5  # to add columns while others add columns


class Conflict(Exception):
    """Another commit to the table came first."""


class DataFiles(ABC):
    """Writes a table's data files. Created when the first rows arrive; the table exists."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The table's columns."""

    @abstractmethod
    def plan(self, rows: pa.Table, name: str) -> Sequence[tuple[str, Any]]:
        """Divide rows into data files. Returns their paths, which contain ``name``, with the second argument of ``write``."""

    @abstractmethod
    def write(self, path: str, part: Any) -> dict[str, JSON]:
        """Write a data file, durably. Returns its description."""

    def check(self, rows: pa.Table) -> None:  # noqa: B027  (most formats can write any value of a column's type)
        """Raise ConfigError for a value that would not read back unchanged."""

    @abstractmethod
    def remove(self, paths: Iterable[str]) -> None:
        """Remove data files, if they exist."""


class TableFormat(ABC):
    """A table to write to. Shipped to tasks."""

    partition_by: tuple[str, ...]
    schema_evolution: bool

    @property
    @abstractmethod
    def name(self) -> str:
        """The table's name in messages."""

    @abstractmethod
    def load(self) -> Any:
        """The table's newest version; None if the table does not exist."""

    @abstractmethod
    def columns(self, table: Any) -> pa.Schema:
        """A loaded table's Arrow columns."""

    @abstractmethod
    def create_committer(self, context: CommitterContext, key: Sequence[str]) -> Committer:
        """A committer of appended rows or, with a ``key``, of changes by key."""

    def open(self, rows: pa.Schema) -> DataFiles:
        """Create the table with these columns unless it exists, or add the columns that it lacks. Raises ConfigError."""
        table = self._load_to_write()
        missing = self._missing_columns(rows, table)
        if table is None:
            table = self._create(pa.schema(missing))
            missing = self._missing_columns(rows, table)  # another task may have created it with other columns
        if missing:
            table = self._add(table, missing)
            new_columns(rows, self.columns(table), self.name, evolution=False)
        return self._files(table)

    def check(self, rows: pa.Schema, key: Sequence[str]) -> None:
        """Raise ConfigError if rows of these columns cannot be written to the existing or new table. If the table is unreachable,
        leave the check to the first epoch: tasks may have credentials that this process lacks."""
        check_key_columns(rows, key, self.name)
        try:
            table = self.load()
        except ForkpointError as error:
            log.info("%s. So it is not known yet whether rows fit the table", error)
            return
        self._missing_columns(rows, table)

    def _missing_columns(self, rows: pa.Schema, table: Any) -> list[pa.Field]:
        """The rows' columns that the table lacks: all if it does not exist. Raises ConfigError if rows do not fit."""
        if table is None:
            self._check_names(rows, pa.schema([]))
            self._check_partitions(rows)
            return [self._column(each) for each in rows]
        self._check(table)
        present = self.columns(table)
        self._check_names(rows, present)
        added = new_columns(rows, present, self.name, evolution=self.schema_evolution)
        return [self._column(each) for each in added]

    def _check_partitions(self, rows: pa.Schema) -> None:
        if missing := [column for column in self._partition_columns() if column not in rows.names]:
            raise ConfigError(
                f"{self.name}: the elements have no column {missing[0]!r} to partition by; their columns are "
                f"{', '.join(rows.names)}: correct partition_by="
            )
        for column in self._partition_columns():
            if pa.types.is_nested(rows.field(column).type):
                raise ConfigError(
                    f"{self.name} cannot be partitioned by column {column!r}, which is {rows.field(column).type}; choose another "
                    "in partition_by="
                )

    def _add(self, table: Any, columns: Sequence[pa.Field]) -> Any:
        """Add columns, unless another task has done so. Returns the table with them."""
        for tries_left in reversed(range(_TRIES)):
            try:
                self._add_columns(table, pa.schema(columns))
                return self.load()
            except Conflict:
                if not tries_left:
                    raise
            table = self.load()
            columns = [each for each in columns if each.name not in self.columns(table).names]
            if not columns:
                return table
        raise AssertionError

    def _column(self, of: pa.Field) -> pa.Field:
        return pa.field(of.name, self._type(of.type, of.name))

    def _type(self, of: pa.DataType, column: str) -> pa.DataType:
        """The type of a new column. Raises ConfigError if the format has no suitable type."""
        types = pa.types
        if types.is_struct(of):
            return pa.struct([pa.field(f.name, self._type(f.type, f"{column}.{f.name}")) for f in of])
        if types.is_list(of) or types.is_large_list(of):
            return pa.list_(self._type(of.value_type, column))
        if types.is_map(of):
            return pa.map_(self._type(of.key_type, column), self._type(of.item_type, column))
        if types.is_timestamp(of):
            return pa.timestamp("us", "UTC" if of.tz else None)
        found = self._simple_type(of)
        if found is None:
            raise ConfigError(
                f"{self.name}: column {column!r} is {of}, which {self._format} has no type for; map it to a str or int"
            )
        return found

    # -- implemented by a format

    @property
    @abstractmethod
    def _format(self) -> str:
        """The format's name in messages."""

    def _load_to_write(self) -> Any:
        """Like ``load``, but may use a cache."""
        return self.load()

    @abstractmethod
    def _create(self, columns: pa.Schema) -> Any:
        """Create the table unless another task was faster. Returns the table."""

    @abstractmethod
    def _partition_columns(self) -> Sequence[str]:
        """The columns that a new table is partitioned by."""

    @abstractmethod
    def _check(self, table: Any) -> None:
        """Raise ConfigError if the table requires a feature that this writer does not support."""

    def _check_names(self, rows: pa.Schema, present: pa.Schema) -> None:  # noqa: B027  (any names are allowed)
        """Raise ConfigError if the format cannot have these columns in addition to the present ones."""

    @abstractmethod
    def _add_columns(self, table: Any, columns: pa.Schema) -> None:
        """Add columns. Raises Conflict if another commit comes first."""

    @abstractmethod
    def _simple_type(self, of: pa.DataType) -> pa.DataType | None:
        """The type of a new column for a type that is neither nested nor a timestamp; None if the format has none."""

    @abstractmethod
    def _files(self, table: Any) -> DataFiles: ...
