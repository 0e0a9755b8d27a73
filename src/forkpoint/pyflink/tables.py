"""Table environments of PyFlink programs, and the values that such programs give them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import forkpoint
from forkpoint.pyflink.environment import StreamExecutionEnvironment

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class EnvironmentSettings(forkpoint.EnvironmentSettings):
    """Settings, with the choice of a planner that Flink 1 has."""

    @staticmethod
    def new_instance() -> EnvironmentSettings.Builder:
        """A builder of settings."""
        return EnvironmentSettings.Builder()

    class Builder(forkpoint.EnvironmentSettings.Builder):
        """Builds settings. The methods return the builder."""

        def use_blink_planner(self) -> EnvironmentSettings.Builder:
            """The only planner."""
            return self

        use_any_planner = use_blink_planner


class _Environment(forkpoint.TableEnvironment):
    """What a program ships with its functions, and the methods that Flink has replaced."""

    def register_table(self, name: str, table: forkpoint.Table) -> None:
        """``create_temporary_view``."""
        self.create_temporary_view(name, table)

    def register_function(self, name: str, function: Any) -> None:
        """``create_temporary_system_function``."""
        self.create_temporary_system_function(name, function)

    def scan(self, *table_path: str) -> forkpoint.Table:
        """``from_path``."""
        return self.from_path(".".join(f"`{part}`" for part in table_path))

    def add_python_file(self, file_path: str) -> None:
        """``add_python_file`` of the stream environment."""
        self._session.env.add_python_file(file_path)

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """``set_python_requirements`` of the stream environment."""
        self._session.env.set_python_requirements(requirements_file_path, requirements_cache_dir)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """``add_python_archive`` of the stream environment."""
        self._session.env.add_python_archive(archive_path, target_dir)


class TableEnvironment(_Environment):
    """A table environment of a program that imports ``pyflink``."""

    environment = StreamExecutionEnvironment
    _named_rows = False  # as in PyFlink


class StreamTableEnvironment(_Environment, forkpoint.StreamTableEnvironment):
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
