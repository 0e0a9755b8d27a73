"""Durations: timedelta, and PyFlink's ``Duration`` and ``Time``."""

from __future__ import annotations

from datetime import timedelta

from forkpoint.errors import ConfigError

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

    to_milliseconds = to_millis  # its name in PyFlink's Time


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
