"""The common part of the table sinks: everything but the table's format."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

from forkpoint.contract.sink import Committer, CommitterContext, CommittingSink, SinkContext, SinkWriter
from forkpoint.errors import ConfigError
from forkpoint.types import TypeInformation
from forkpoint.types.variables import T_contra
from forkpoint_lakehouse.columns import row_schema, type_of_rows
from forkpoint_lakehouse.format import TableFormat
from forkpoint_lakehouse.writers import AppendWriter, StagingAppendWriter, UpsertWriter

Mode = Literal["append", "upsert"]


class TableSink(CommittingSink[T_contra]):
    """Writes records to a table, every epoch once."""

    def __init__(self, table: TableFormat, mode: Mode, key: Sequence[str], commit_every: timedelta | None) -> None:
        self._table = table
        self._mode = mode
        self._key = tuple(key)
        self._commit_every = commit_every

    @property
    def commit_every(self) -> timedelta | None:
        return self._commit_every

    def check_type(self, type: TypeInformation[Any]) -> None:
        self._table.check(row_schema(type_of_rows(type, self._table.name)), self._key)

    def create_writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        if self._mode == "upsert":
            # Many manifests name output that waits for its commit, so it must not be embedded in them.
            stage = context.stage if self._commit_every is None else context.stage_file
            return UpsertWriter(context, self._table, self._key, stage)
        if self._commit_every is not None:
            return StagingAppendWriter(context, self._table)
        return AppendWriter(context, self._table)

    def create_committer(self, context: CommitterContext) -> Committer:
        return self._table.create_committer(context, self._key)


def column_names(sink: str, option: str, given: Any) -> tuple[str, ...]:
    """A tuple of column names, from several names or a single one. Raises ConfigError."""
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f'{sink}: {option}={given!r} are not columns; give their names, such as {option}=("id",)')
    return tuple(names)


def check_options(sink: str, mode: Any, key: Sequence[str], commit_every: Any) -> None:
    """Raise ConfigError for options that make no sense."""
    if mode not in ("append", "upsert"):
        raise ConfigError(f'{sink}: mode={mode!r} is unknown; give "append" or "upsert"')
    if mode == "upsert" and not key:
        raise ConfigError(f'{sink}: mode="upsert" needs the columns that identify a row; give key=("id",)')
    if mode == "append" and key:
        raise ConfigError(f'{sink}: key={tuple(key)!r} has no meaning with mode="append"; leave it out, or give mode="upsert"')
    if commit_every is not None and not (isinstance(commit_every, timedelta) and commit_every > timedelta()):
        raise ConfigError(f"{sink}: commit_every={commit_every!r} is not a duration; give one such as timedelta(minutes=1)")
