"""Table environments of PyFlink programs, and the values that such programs give them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import forkpoint
from forkpoint.pyflink.environment import StreamExecutionEnvironment

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _WithFiles(forkpoint.TableEnvironment):
    """What a program ships with its functions."""

    def add_python_file(self, file_path: str) -> None:
        """``add_python_file`` of the stream environment."""
        self._session.env.add_python_file(file_path)

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """``set_python_requirements`` of the stream environment."""
        self._session.env.set_python_requirements(requirements_file_path, requirements_cache_dir)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """``add_python_archive`` of the stream environment."""
        self._session.env.add_python_archive(archive_path, target_dir)


class TableEnvironment(_WithFiles):
    """A table environment of a program that imports ``pyflink``."""

    environment = StreamExecutionEnvironment
    _named_rows = False  # as in PyFlink


class StreamTableEnvironment(_WithFiles, forkpoint.StreamTableEnvironment):
    """A table environment of a program that imports ``pyflink``, with the methods that Flink has replaced."""

    environment = StreamExecutionEnvironment
    _named_rows = False  # as in PyFlink

    def to_append_stream(self, table: forkpoint.Table, type_info: Any) -> forkpoint.DataStream[Any]:
        """``to_data_stream``, as elements of a type."""
        return self.to_data_stream(table).map(_values, output_type=type_info)

    def to_retract_stream(self, table: forkpoint.Table, type_info: Any) -> forkpoint.DataStream[Any]:
        """Changes as pairs: whether the row is added, and the row."""
        changes = self.to_changelog_stream(table)
        return changes.map(_change, output_type=forkpoint.Types.TUPLE([forkpoint.Types.BOOLEAN(), type_info]))


def _values(row: forkpoint.Row) -> tuple[Any, ...]:
    return tuple(row)


def _change(row: forkpoint.Row) -> tuple[bool, tuple[Any, ...]]:
    return row.get_row_kind() is forkpoint.RowKind.INSERT, tuple(row)


class Instant:
    """Makes instants, which are datetimes with a time zone here."""

    def __new__(cls, seconds: int, nanos: int) -> datetime:  # type: ignore[misc]  # programs call it for a value
        return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> datetime:
        """The time so many milliseconds after 1970."""
        return _EPOCH + timedelta(milliseconds=epoch_milli)
