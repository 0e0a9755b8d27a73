"""Event time: where timestamps come from, and how far a stream has got in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, overload

from forkpoint.errors import ConfigError
from forkpoint.functions.durations import to_ms
from forkpoint.types.variables import S, T_contra

# What a function sees where no watermark came yet, and once the input has ended; milliseconds, Flink's own values.
MIN_WATERMARK = -(2**63)
MAX_WATERMARK = 2**63 - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class TimestampAssigner(ABC, Generic[T_contra]):
    """Tells an element's timestamp."""

    @abstractmethod
    def extract_timestamp(self, value: T_contra, record_timestamp: int, /) -> int:
        """The element's timestamp in int milliseconds since 1970-01-01 UTC.

        ``record_timestamp`` is the one that the source gave it, MIN_WATERMARK where it gave none.
        """


class WatermarkOutput(ABC):
    """Where a WatermarkGenerator puts its watermarks."""

    @abstractmethod
    def emit_watermark(self, watermark: int) -> None:
        """No more elements at or before this time (int milliseconds); one behind an earlier watermark is ignored."""

    @abstractmethod
    def mark_idle(self) -> None:
        """Don't wait for this split from the epoch's end on, until its next watermark."""

    @abstractmethod
    def mark_active(self) -> None:
        """Wait for this split again."""


class WatermarkGenerator(ABC, Generic[T_contra]):
    """Makes the watermarks of one split. One instance a split; its state is kept with the split's position.

    It sees the split's elements in their order, so one task reads a split in each epoch.
    """

    @abstractmethod
    def on_event(self, value: T_contra, event_timestamp: int, output: WatermarkOutput, /) -> None:
        """Called for each element of the split, in order."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput, /) -> None:
        """Called at the end of each epoch that brought elements of the split, unless the automatic watermark interval is 0.

        What is emitted only here depends on where epochs are cut; what ``on_event`` emits does not.
        """

    def snapshot_state(self) -> Mapping[str, Any]:
        """What to keep between epochs: attribute names and values of plain types (``Types.ANY``). Default: all."""
        return dict(vars(self))

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``snapshot_state`` returned."""
        vars(self).update(state)


@dataclass(frozen=True)
class WatermarkAlignment:
    """Sources of a group read on only while they are less than ``max_drift_ms`` ahead of the group's slowest."""

    group: str
    max_drift_ms: int
    update_interval_ms: int


@dataclass(frozen=True)
class WatermarkStrategy(Generic[T_contra]):
    """How a source's (or ``assign_timestamps_and_watermarks``'s) timestamps and watermarks are made.

    Start with one of the ``for_*`` methods or ``no_watermarks()`` and add to it with the ``with_*`` ones; each returns
    a new strategy. Watermarks follow each split on its own and act as if there were one between any two elements; an
    operator sees the minimum over the splits that are not idle.

    ``out_of_orderness_ms``: how far the watermark stays behind the greatest timestamp, None for no watermarks or where
    ``generator_factory`` makes them. ``idleness_ms``: after how long without elements a split is not waited for.
    """

    out_of_orderness_ms: int | None = None
    generator_factory: Callable[[], WatermarkGenerator[T_contra]] | None = None
    timestamp_assigner: TimestampAssigner[T_contra] | Callable[[T_contra, int], int | datetime] | None = None
    idleness_ms: int | None = None
    alignment: WatermarkAlignment | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy[T_contra]:
        """For timestamps that never go back within a split. An element that does is late."""
        return WatermarkStrategy(out_of_orderness_ms=0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: timedelta | int) -> WatermarkStrategy[T_contra]:
        """For elements at most that much (timedelta or int ms, ≥ 0, else ConfigError) behind their split's newest."""
        return WatermarkStrategy(out_of_orderness_ms=to_ms(max_out_of_orderness, "max_out_of_orderness"))

    @staticmethod
    def no_watermarks() -> WatermarkStrategy[T_contra]:
        """Event time stands still until the input ends."""
        return WatermarkStrategy()

    @staticmethod
    def for_generator(generator_factory: Callable[[], WatermarkGenerator[S]]) -> WatermarkStrategy[S]:
        """Watermarks by your own WatermarkGenerator; ``generator_factory()`` makes one for each split."""
        if not callable(generator_factory):
            raise ConfigError(
                f"for_generator takes a callable that returns a WatermarkGenerator: {generator_factory!r}"
            )
        return WatermarkStrategy(generator_factory=generator_factory)

    @overload
    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner[S]) -> WatermarkStrategy[S]: ...
    @overload
    def with_timestamp_assigner(
        self, timestamp_assigner: Callable[[T_contra, int], int | datetime]
    ) -> WatermarkStrategy[T_contra]: ...
    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner[Any] | Callable[[Any, int], int | datetime]
    ) -> WatermarkStrategy[Any]:
        """Timestamps by a TimestampAssigner or ``f(element, record_timestamp)``, in place of those of the source.

        The function returns int milliseconds since 1970-01-01 UTC or a datetime with a time zone.
        """
        if not isinstance(timestamp_assigner, TimestampAssigner) and not callable(timestamp_assigner):
            raise ConfigError(
                f"a timestamp assigner is a TimestampAssigner or f(element, record_timestamp), not "
                f"{timestamp_assigner!r}"
            )
        return replace(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: timedelta | int) -> WatermarkStrategy[T_contra]:
        """Don't wait for a split without elements for that long (timedelta, or int ms; above 0, else ConfigError)."""
        return replace(self, idleness_ms=to_ms(idle_timeout, "idle_timeout", minimum_ms=1))

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: timedelta | int,
        update_interval: timedelta | int = timedelta(seconds=1),
    ) -> WatermarkStrategy[T_contra]:
        """Hold sources back that are ahead of their group's slowest by more than the drift (timedelta or int ms).

        For native sources with watermarks, given to ``from_source``; others are a GraphError. They are looked at before each
        epoch, so ``update_interval`` has no effect, and may get ahead by the drift and what an epoch reads.
        """
        if not watermark_group:
            raise ConfigError("watermark_group is empty; name the group of sources that wait for each other")
        drift = to_ms(max_allowed_watermark_drift, "max_allowed_watermark_drift", minimum_ms=1)
        interval = to_ms(update_interval, "update_interval", minimum_ms=1)
        return replace(self, alignment=WatermarkAlignment(watermark_group, drift, interval))

    def timestamp_function(self) -> Callable[[Any, int], int] | None:
        """``f(element, record_timestamp) -> int ms``, None where the source's own timestamps stay."""
        assigner = self.timestamp_assigner
        if assigner is None:
            return None
        extract = assigner.extract_timestamp if isinstance(assigner, TimestampAssigner) else assigner

        def timestamp_of(element: Any, record_timestamp: int) -> int:
            timestamp = extract(element, record_timestamp)
            return timestamp if timestamp.__class__ is int else epoch_ms(timestamp)

        return timestamp_of


def epoch_ms(value: Any) -> int:
    """Milliseconds since 1970-01-01 UTC of an int (ms already), anything that acts as one, or an aware datetime.

    The one check of every time that a program gives: timestamps, timers, watermarks. Raises ValueError for a datetime
    without time zone and a number beyond 64 bits, TypeError for anything else.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"timestamp {value!r} has no time zone; attach one, as with .replace(tzinfo=timezone.utc)")
        return (value - _EPOCH) // _MILLISECOND
    if hasattr(value, "__index__") and not isinstance(value, bool):
        ms = int(value.__index__())
        if MIN_WATERMARK <= ms <= MAX_WATERMARK:
            return ms
        raise ValueError(f"a time is int milliseconds from -2**63 to 2**63 - 1, not {ms}")
    raise TypeError(f"a time is int milliseconds or a datetime with time zone, not {value!r} ({type(value).__name__})")
