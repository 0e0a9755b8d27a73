"""What a table sink needs of a table format: creating a table, adding columns, writing data files, committing them."""

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

_TRIES = 5  # to add columns, beside others that do


class Conflict(Exception):
    """Another commit to the table got ahead."""


class DataFiles(ABC):
    """Where and how a table's data files are written. Created when the first rows are there; the table exists."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The table's columns."""

    @abstractmethod
    def plan(self, rows: pa.Table, name: str) -> Sequence[tuple[str, Any]]:
        """Divide rows into data files: the path of each, which contains ``name``, and what ``write`` needs."""

    @abstractmethod
    def write(self, path: str, part: Any) -> dict[str, JSON]:
        """Write a data file, durably. Returns its description."""

    def check(self, rows: pa.Table) -> None:  # noqa: B027  (most formats can write any value of a column's type)
        """Raise ConfigError for a value that the table would not give back."""

    @abstractmethod
    def remove(self, paths: Iterable[str]) -> None:
        """Remove data files, if they exist."""


class TableFormat(ABC):
    """A table to write to. Shipped to the tasks."""

    partition_by: tuple[str, ...]
    schema_evolution: bool

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages call the table."""

    @abstractmethod
    def load(self) -> Any:
        """The table's newest version; None if there is none."""

    @abstractmethod
    def columns(self, table: Any) -> pa.Schema:
        """A loaded table's columns as Arrow's."""

    @abstractmethod
    def create_committer(self, context: CommitterContext, key: Sequence[str]) -> Committer:
        """A committer of appended rows or, with a ``key``, of changes by it."""

    def open(self, rows: pa.Schema) -> DataFiles:
        """Create the table for these columns unless it exists, or add those that it lacks. Raises ConfigError."""
        table = self._load_to_write()
        missing = self._missing_columns(rows, table)
        if table is None:
            table = self._create(pa.schema(missing))
            missing = self._missing_columns(rows, table)  # another one may have created it, in another way
        if missing:
            table = self._add(table, missing)
            new_columns(rows, self.columns(table), self.name, evolution=False)
        return self._files(table)

    def check(self, rows: pa.Schema, key: Sequence[str]) -> None:
        """Raise ConfigError if rows of these columns cannot be written to the table, or to a new one. If the table cannot
        be reached, the first epoch will tell: tasks may have credentials that this process lacks."""
        check_key_columns(rows, key, self.name)
        try:
            table = self.load()
        except ForkpointError as error:
            log.info("%s. So whether rows fit the table is not known yet", error)
            return
        self._missing_columns(rows, table)

    def _missing_columns(self, rows: pa.Schema, table: Any) -> list[pa.Field]:
        """What a table lacks of the rows' columns, all of them if there is none. Raises ConfigError if rows do not fit."""
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
        """The type of a new column. Raises ConfigError for what the format has no type for."""
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

    # -- of one format

    @property
    @abstractmethod
    def _format(self) -> str:
        """What messages call the format."""

    def _load_to_write(self) -> Any:
        """As ``load``; may remember what it has read before."""
        return self.load()

    @abstractmethod
    def _create(self, columns: pa.Schema) -> Any:
        """Create the table, unless another task was faster. Returns it."""

    @abstractmethod
    def _partition_columns(self) -> Sequence[str]:
        """The columns that a new table is partitioned by."""

    @abstractmethod
    def _check(self, table: Any) -> None:
        """Raise ConfigError if the table demands of its writers what this one does not do."""

    def _check_names(self, rows: pa.Schema, present: pa.Schema) -> None:  # noqa: B027  (any will do)
        """Raise ConfigError if the format cannot have these columns beside those that are present."""

    @abstractmethod
    def _add_columns(self, table: Any, columns: pa.Schema) -> None:
        """Add columns. Raises Conflict if another commit gets ahead."""

    @abstractmethod
    def _simple_type(self, of: pa.DataType) -> pa.DataType | None:
        """The type of a new column for a type that is neither nested nor a time stamp; None if there is none."""

    @abstractmethod
    def _files(self, table: Any) -> DataFiles: ...
