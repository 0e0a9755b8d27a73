"""Event time: timestamps and watermarks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, overload

from forkpoint.errors import ConfigError
from forkpoint.functions.base import no_class
from forkpoint.functions.state.ttl import to_ms
from forkpoint.types.variables import S, T_contra

# The watermarks before the first watermark and after the end of the input, in ms, as in Flink.
MIN_WATERMARK = -(2**63)
MAX_WATERMARK = 2**63 - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class TimestampAssigner(ABC, Generic[T_contra]):
    """Extracts the timestamp of an element."""

    @abstractmethod
    def extract_timestamp(self, value: T_contra, record_timestamp: int, /) -> int:
        """Return the element's timestamp in int milliseconds since 1970-01-01 UTC.

        ``record_timestamp``: the timestamp from the source, MIN_WATERMARK without one.
        """


class WatermarkOutput(ABC):
    """The output of a WatermarkGenerator."""

    @abstractmethod
    def emit_watermark(self, watermark: int) -> None:
        """Declare that no more elements at or before this time (int ms) follow. A lower watermark is ignored."""

    @abstractmethod
    def mark_idle(self) -> None:
        """Exclude this split from the watermark, from the end of the epoch until the split's next watermark."""

    @abstractmethod
    def mark_active(self) -> None:
        """Include this split in the watermark again."""


class WatermarkGenerator(ABC, Generic[T_contra]):
    """Generates the watermarks of one split. Each split has an instance, whose state is saved with the split's offset.

    The instance sees the split's elements in order, so one task reads the entire split in an epoch.
    """

    @abstractmethod
    def on_event(self, value: T_contra, event_timestamp: int, output: WatermarkOutput, /) -> None:
        """Called for each element of the split, in order."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput, /) -> None:
        """Called at the end of each epoch with elements of the split, unless the auto watermark interval is 0.

        Watermarks emitted here depend on the division of the input into epochs; watermarks of ``on_event`` do not.
        """

    def snapshot_state(self) -> Mapping[str, Any]:
        """Return the state to save: attribute names and values that ``Types.ANY`` supports. Default: all attributes."""
        return dict(vars(self))

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by ``snapshot_state``."""
        vars(self).update(state)


@dataclass(frozen=True)
class WatermarkAlignment:
    """Sources of ``group`` pause while they are more than ``max_drift_ms`` ahead of the group's slowest."""

    group: str
    max_drift_ms: int
    update_interval_ms: int


@dataclass(frozen=True)
class WatermarkStrategy(Generic[T_contra]):
    """Assigns timestamps and watermarks, at a source or in ``assign_timestamps_and_watermarks``.

    Start with a ``for_*`` method or ``no_watermarks()`` and refine it with the ``with_*`` methods; each returns a new
    strategy. Watermarks are generated per split, in effect after every element; an operator sees the minimum over the
    splits that are not idle.

    ``out_of_orderness_ms``: how far the watermark trails the greatest timestamp, None for no watermarks or with a
    ``generator_factory``. ``idleness_ms``: the time without elements after which a split is idle.
    """

    out_of_orderness_ms: int | None = None
    generator_factory: Callable[[], WatermarkGenerator[T_contra]] | None = None
    timestamp_assigner: TimestampAssigner[T_contra] | Callable[[T_contra, int], int | datetime] | None = None
    idleness_ms: int | None = None
    alignment: WatermarkAlignment | None = None

    @property
    def emits_watermarks(self) -> bool:
        """Whether streams with this strategy have watermarks."""
        return self.out_of_orderness_ms is not None or self.generator_factory is not None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy[T_contra]:
        """For timestamps that never decrease within a split. An element with a lower timestamp is late."""
        return WatermarkStrategy(out_of_orderness_ms=0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: timedelta | int) -> WatermarkStrategy[T_contra]:
        """For elements at most this much (timedelta or int ms, ≥ 0, else ConfigError) behind their split's latest."""
        return WatermarkStrategy(out_of_orderness_ms=to_ms(max_out_of_orderness, "max_out_of_orderness"))

    @staticmethod
    def no_watermarks() -> WatermarkStrategy[T_contra]:
        """No watermarks: event time does not advance until the input ends."""
        return WatermarkStrategy()

    @staticmethod
    def for_generator(generator_factory: Callable[[], WatermarkGenerator[S]]) -> WatermarkStrategy[S]:
        """Generate watermarks with a WatermarkGenerator per split, created by ``generator_factory()``."""
        if not callable(generator_factory):
            raise ConfigError(f"for_generator() takes a callable that returns a WatermarkGenerator, not {generator_factory!r}")
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
        """Replace the timestamps of the source, with a TimestampAssigner or ``f(element, record_timestamp)``.

        The function returns int milliseconds since 1970-01-01 UTC or a datetime with a time zone.
        """
        no_class(timestamp_assigner, "with_timestamp_assigner()")
        if not isinstance(timestamp_assigner, TimestampAssigner) and not callable(timestamp_assigner):
            raise ConfigError(
                f"a timestamp assigner is a TimestampAssigner or f(element, record_timestamp), not {timestamp_assigner!r}"
            )
        return replace(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: timedelta | int) -> WatermarkStrategy[T_contra]:
        """Treat a split without elements for this long (timedelta or int ms, above 0, else ConfigError) as idle."""
        return replace(self, idleness_ms=to_ms(idle_timeout, "idle_timeout", minimum_ms=1))

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: timedelta | int,
        update_interval: timedelta | int = timedelta(seconds=1),
    ) -> WatermarkStrategy[T_contra]:
        """Pause sources that are ahead of their group's slowest by more than the drift (timedelta or int ms).

        For native sources with watermarks, passed to ``from_source``; GraphError for others. The drift is checked before each
        epoch, so ``update_interval`` has no effect, and a source may exceed the drift by the input of one epoch.
        """
        if not watermark_group:
            raise ConfigError("watermark_group is empty; name the group of sources to align")
        drift = to_ms(max_allowed_watermark_drift, "max_allowed_watermark_drift", minimum_ms=1)
        interval = to_ms(update_interval, "update_interval", minimum_ms=1)
        return replace(self, alignment=WatermarkAlignment(watermark_group, drift, interval))

    def timestamp_function(self) -> Callable[[Any, int], int] | None:
        """``f(element, record_timestamp) -> int ms``, or None to keep the source's timestamps."""
        assigner = self.timestamp_assigner
        if assigner is None:
            return None
        extract = assigner.extract_timestamp if isinstance(assigner, TimestampAssigner) else assigner

        def timestamp_of(element: Any, record_timestamp: int) -> int:
            timestamp = extract(element, record_timestamp)
            return timestamp if timestamp.__class__ is int else epoch_ms(timestamp)

        return timestamp_of


def epoch_ms(value: Any) -> int:
    """Milliseconds since 1970-01-01 UTC, from int ms, an integer-like object, or a timezone-aware datetime.

    Validates all timestamps, timers and watermarks from user code. ValueError for a naive datetime or a number beyond 64
    bits, TypeError for anything else.
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
