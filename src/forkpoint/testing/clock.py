"""A clock that advances only on request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from forkpoint.functions import to_ms
from forkpoint.functions.watermarks import epoch_ms

DEFAULT_START = datetime(2000, 1, 1, tzinfo=UTC)


class ManualClock:
    """Processing time for tests. Calling the clock gives int milliseconds since 1970-01-01 UTC.

    ``start``: an aware datetime or int ms.
    """

    def __init__(self, start: datetime | int = DEFAULT_START) -> None:
        self._now_ms = epoch_ms(start)

    def __call__(self) -> int:
        return self._now_ms

    @property
    def now(self) -> datetime:
        """The time as a datetime in UTC."""
        return datetime.fromtimestamp(self._now_ms / 1000, UTC)

    def advance(self, by: timedelta | int) -> int:
        """Advance by a timedelta or int ms (≥ 0, else ConfigError). Returns the new time in ms."""
        self._now_ms += to_ms(by, "the step of the clock")
        return self._now_ms

    def set(self, time: datetime | int) -> int:
        """Advance to an aware datetime or int ms; a time in the past leaves the clock unchanged. Returns ms."""
        self._now_ms = max(self._now_ms, epoch_ms(time))
        return self._now_ms
