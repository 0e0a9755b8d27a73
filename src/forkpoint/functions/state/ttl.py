"""Durations (timedelta, and PyFlink's ``Duration`` and ``Time``), and the time to live of state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Self

from forkpoint.errors import Choice, ConfigError


@dataclass(frozen=True)
class StateTtlConfig:
    """Time to live of a state's entries: the value, each list element, or each map entry.

    Created by ``StateTtlConfig.new_builder(timedelta(hours=1)).build()``. ``ttl_ms`` is int milliseconds.
    """

    class UpdateType(Choice):
        """The accesses that renew an entry's time to live."""

        Disabled = 0
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Choice):
        """Whether expired entries can be read until they are removed."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Choice):
        """The clock by which entries expire. Event time is the operator's watermark (Flink has only processing time)."""

        ProcessingTime = 0
        EventTime = 1

    ttl_ms: int
    update_type: UpdateType = UpdateType.OnCreateAndWrite
    state_visibility: StateVisibility = StateVisibility.NeverReturnExpired
    time_characteristic: TtlTimeCharacteristic = TtlTimeCharacteristic.ProcessingTime
    cleanup_in_background: bool = True

    @staticmethod
    def new_builder(ttl: timedelta | int) -> StateTtlConfigBuilder:
        """Start a builder. ``ttl``: timedelta or int milliseconds, above 0, else ConfigError."""
        return StateTtlConfigBuilder(ttl)

    def get_ttl(self) -> Duration:
        """The time to live."""
        return Duration.of_millis(self.ttl_ms)

    def get_update_type(self) -> UpdateType:
        """The accesses that renew an entry's time to live."""
        return self.update_type

    def get_state_visibility(self) -> StateVisibility:
        """Whether expired entries can be read until they are removed."""
        return self.state_visibility

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        """The clock by which entries expire."""
        return self.time_characteristic

    @property
    def event_time(self) -> bool:
        """Whether entries expire by the watermark rather than the wall clock."""
        return self.time_characteristic is self.TtlTimeCharacteristic.EventTime

    @property
    def updates_on_read(self) -> bool:
        """Whether reading an entry renews its time to live."""
        return self.update_type is self.UpdateType.OnReadAndWrite

    @property
    def returns_expired(self) -> bool:
        """Whether expired entries can be read until they are removed."""
        return self.state_visibility is self.StateVisibility.ReturnExpiredIfNotCleanedUp

    def is_enabled(self) -> bool:
        """False if the update type is ``Disabled``."""
        return self.update_type is not self.UpdateType.Disabled


class StateTtlConfigBuilder:
    """Builds a StateTtlConfig. All methods but ``build()`` return the builder."""

    def __init__(self, ttl: timedelta | int) -> None:
        self._config = StateTtlConfig(to_ms(ttl, "the time to live of state", minimum_ms=1))

    def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> Self:
        """Set the accesses that renew an entry's time to live; default OnCreateAndWrite."""
        return self._with(update_type=StateTtlConfig.UpdateType(update_type))

    def update_ttl_on_create_and_write(self) -> Self:
        """Renew the time to live at each write (the default)."""
        return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> Self:
        """Renew the time to live at each write and read; every read then costs a write."""
        return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: StateTtlConfig.StateVisibility) -> Self:
        """Set whether expired entries can be read until they are removed."""
        return self._with(state_visibility=StateTtlConfig.StateVisibility(state_visibility))

    def never_return_expired(self) -> Self:
        """Never return expired entries (the default)."""
        return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

    def return_expired_if_not_cleaned_up(self) -> Self:
        """Return expired entries until they are removed."""
        return self.set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)

    def set_ttl_time_characteristic(self, time_characteristic: StateTtlConfig.TtlTimeCharacteristic) -> Self:
        """Set the clock by which entries expire."""
        return self._with(time_characteristic=StateTtlConfig.TtlTimeCharacteristic(time_characteristic))

    def use_processing_time(self) -> Self:
        """Expire entries by the wall clock, read once per epoch (the default)."""
        return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)

    def use_event_time(self) -> Self:
        """Expire entries by the operator's watermark, so that a replay expires the same entries as the original run."""
        return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.EventTime)

    def cleanup_full_snapshot(self) -> Self:
        """Accepted for PyFlink compatibility, without effect: each epoch removes some expired entries in the background."""
        return self

    def cleanup_incrementally(self, cleanup_size: int, run_cleanup_for_every_record: bool = False) -> Self:
        """Enable background cleanup; the engine sets its pace. ``cleanup_size``: above 0, else ConfigError."""
        return self._in_background(cleanup_size, "cleanup_size")

    def cleanup_in_rocksdb_compact_filter(
        self, query_time_after_num_entries: int, periodic_compaction_time: timedelta | int | None = None
    ) -> Self:
        """Enable background cleanup with any store; the engine sets its pace. ConfigError for non-positive numbers."""
        if periodic_compaction_time is not None:
            to_ms(periodic_compaction_time, "periodic_compaction_time")
        return self._in_background(query_time_after_num_entries, "query_time_after_num_entries")

    def disable_cleanup_in_background(self) -> Self:
        """Remove expired entries only when their key is processed."""
        return self._with(cleanup_in_background=False)

    def build(self) -> StateTtlConfig:
        """Build the configuration."""
        return self._config

    def _in_background(self, number: int, parameter: str) -> Self:
        if number <= 0:
            raise ConfigError(f"{parameter} is {number}; it must be above 0")
        return self._with(cleanup_in_background=True)

    def _with(self, **changes: Any) -> Self:
        self._config = replace(self._config, **changes)
        return self


_MILLISECOND = timedelta(milliseconds=1)


class Duration(timedelta):
    """A timedelta with PyFlink's constructors. Every API that takes one also accepts a plain timedelta.

    Its resolution is a microsecond; APIs round it down to whole milliseconds.
    """

    @classmethod
    def of_days(cls, days: float) -> Duration:
        """A duration of that many days of 24 hours."""
        return cls(days=days)

    @classmethod
    def of_hours(cls, hours: float) -> Duration:
        """A duration of that many hours."""
        return cls(hours=hours)

    @classmethod
    def of_minutes(cls, minutes: float) -> Duration:
        """A duration of that many minutes."""
        return cls(minutes=minutes)

    @classmethod
    def of_seconds(cls, seconds: float, nano_adjustment: int = 0) -> Duration:
        """A duration of that many seconds plus ``nano_adjustment`` nanoseconds."""
        return cls(seconds=seconds, microseconds=nano_adjustment / 1000)

    @classmethod
    def of_millis(cls, millis: float) -> Duration:
        """A duration of that many milliseconds."""
        return cls(milliseconds=millis)

    @classmethod
    def of_nanos(cls, nanos: int) -> Duration:
        """A duration of that many nanoseconds, rounded to microseconds."""
        return cls(microseconds=nanos / 1000)

    def to_millis(self) -> int:
        """Whole milliseconds, rounded down."""
        return self // _MILLISECOND

    to_milliseconds = to_millis  # the name in PyFlink's Time


class Time:
    """PyFlink's ``Time``: alternative constructors of :class:`Duration`.

    It is not a timedelta, because ``Time.seconds(5)`` would conflict with the attribute ``timedelta.seconds``.
    """

    days = Duration.of_days
    hours = Duration.of_hours
    minutes = Duration.of_minutes
    seconds = Duration.of_seconds

    @staticmethod
    def milliseconds(milliseconds: float) -> Duration:
        """A duration of that many milliseconds."""
        return Duration(milliseconds=milliseconds)


def to_ms(value: timedelta | int, what: str, minimum_ms: int = 0) -> int:
    """Whole milliseconds of a timedelta; an int is taken as milliseconds, as in PyFlink.

    ConfigError, naming ``what``, for another type or a value below ``minimum_ms``.
    """
    if isinstance(value, timedelta):
        ms = value // _MILLISECOND
    elif isinstance(value, int) and not isinstance(value, bool):
        ms = value
    else:
        raise ConfigError(f"{what} is {value!r} ({type(value).__name__}); give a timedelta or int milliseconds")
    if ms < minimum_ms:
        raise ConfigError(f"{what} is {ms} ms; it must be at least {minimum_ms} ms")
    return ms
