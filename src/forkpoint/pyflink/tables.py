"""Table environments of PyFlink programs, and the values that such programs give them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import forkpoint
from forkpoint.pyflink.environment import StreamExecutionEnvironment

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TableEnvironment(forkpoint.TableEnvironment):
    """A table environment of a program that imports ``pyflink``."""

    environment = StreamExecutionEnvironment


class StreamTableEnvironment(forkpoint.StreamTableEnvironment):
    """A table environment of a program that imports ``pyflink``."""

    environment = StreamExecutionEnvironment


class Instant:
    """Makes instants, which are datetimes with a time zone here."""

    def __new__(cls, seconds: int, nanos: int) -> datetime:  # type: ignore[misc]  # programs call it for a value
        return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> datetime:
        """The time so many milliseconds after 1970."""
        return _EPOCH + timedelta(milliseconds=epoch_milli)
