"""How long state lives after it was last written (or read)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from forkpoint.errors import ConfigError
from forkpoint.functions.durations import Duration, to_ms


@dataclass(frozen=True)
class StateTtlConfig:
    """Time to live of a state's entries: of the value, of each list element, of each map entry.

    Made by ``StateTtlConfig.new_builder(timedelta(hours=1)).build()``. ``ttl_ms`` is int milliseconds.
    """

    class UpdateType(Enum):
        """What starts an entry's time to live anew."""

        Disabled = 0
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        """Whether an expired entry that was not removed yet can still be read."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """Which clock an entry ages by. Event time is the operator's watermark (Flink has processing time only)."""

        ProcessingTime = 0
        EventTime = 1

    ttl_ms: int
    update_type: UpdateType = UpdateType.OnCreateAndWrite
    state_visibility: StateVisibility = StateVisibility.NeverReturnExpired
    time_characteristic: TtlTimeCharacteristic = TtlTimeCharacteristic.ProcessingTime
    cleanup_in_background: bool = True

    @staticmethod
    def new_builder(ttl: timedelta | int) -> StateTtlConfigBuilder:
        """Start a configuration. ``ttl``: a timedelta or int milliseconds, above 0; else ConfigError."""
        return StateTtlConfigBuilder(ttl)

    def get_ttl(self) -> Duration:
        """The time to live."""
        return Duration.of_millis(self.ttl_ms)

    def get_update_type(self) -> UpdateType:
        """What starts the time to live anew."""
        return self.update_type

    def get_state_visibility(self) -> StateVisibility:
        """Whether expired entries can be seen until they are removed."""
        return self.state_visibility

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        """The clock that entries age by."""
        return self.time_characteristic

    @property
    def event_time(self) -> bool:
        """Whether entries age by the watermark rather than by the wall clock."""
        return self.time_characteristic is self.TtlTimeCharacteristic.EventTime

    @property
    def updates_on_read(self) -> bool:
        """Whether reading an entry starts its time to live anew."""
        return self.update_type is self.UpdateType.OnReadAndWrite

    @property
    def returns_expired(self) -> bool:
        """Whether an expired entry is returned as long as it was not removed."""
        return self.state_visibility is self.StateVisibility.ReturnExpiredIfNotCleanedUp

    def is_enabled(self) -> bool:
        """False where the update type is ``Disabled``."""
        return self.update_type is not self.UpdateType.Disabled


class StateTtlConfigBuilder:
    """Collects the settings of a StateTtlConfig; every method but ``build()`` returns the builder."""

    def __init__(self, ttl: timedelta | int) -> None:
        self._ttl_ms = to_ms(ttl, "the time to live of state", minimum_ms=1)
        self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
        self._visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
        self._time = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
        self._cleanup = True

    def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> StateTtlConfigBuilder:
        """What starts an entry's time to live anew; writing, unless said otherwise."""
        self._update_type = StateTtlConfig.UpdateType(update_type)
        return self

    def update_ttl_on_create_and_write(self) -> StateTtlConfigBuilder:
        """Each write starts the time to live anew (the default)."""
        return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> StateTtlConfigBuilder:
        """Each read does so too; every read then costs a write."""
        return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: StateTtlConfig.StateVisibility) -> StateTtlConfigBuilder:
        """Whether an expired entry may be returned as long as it was not removed."""
        self._visibility = StateTtlConfig.StateVisibility(state_visibility)
        return self

    def never_return_expired(self) -> StateTtlConfigBuilder:
        """An expired entry is as good as gone (the default)."""
        return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

    def return_expired_if_not_cleaned_up(self) -> StateTtlConfigBuilder:
        """An expired entry is returned until it is removed."""
        return self.set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)

    def set_ttl_time_characteristic(
        self, time_characteristic: StateTtlConfig.TtlTimeCharacteristic
    ) -> StateTtlConfigBuilder:
        """The clock that entries age by."""
        self._time = StateTtlConfig.TtlTimeCharacteristic(time_characteristic)
        return self

    def use_processing_time(self) -> StateTtlConfigBuilder:
        """Entries age by the wall clock, one reading an epoch (the default)."""
        return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)

    def use_event_time(self) -> StateTtlConfigBuilder:
        """Entries age by the operator's watermark, so that a replay of history expires what the live run did."""
        return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.EventTime)

    def cleanup_full_snapshot(self) -> StateTtlConfigBuilder:
        """Accepted for PyFlink programs. Expired entries go in the background, some with each epoch."""
        return self

    def cleanup_incrementally(
        self, cleanup_size: int, run_cleanup_for_every_record: bool = False
    ) -> StateTtlConfigBuilder:
        """Accepted for PyFlink programs: turns background cleanup on, at the engine's pace."""
        return self._in_background(cleanup_size, "cleanup_size")

    def cleanup_in_rocksdb_compact_filter(
        self, query_time_after_num_entries: int, periodic_compaction_time: timedelta | int | None = None
    ) -> StateTtlConfigBuilder:
        """Accepted for PyFlink programs: turns background cleanup on; its pace is the engine's, for every store."""
        if periodic_compaction_time is not None:
            to_ms(periodic_compaction_time, "periodic_compaction_time")
        return self._in_background(query_time_after_num_entries, "query_time_after_num_entries")

    def disable_cleanup_in_background(self) -> StateTtlConfigBuilder:
        """Expired entries are removed only when their key is worked on."""
        self._cleanup = False
        return self

    def build(self) -> StateTtlConfig:
        """The configuration as a value."""
        return StateTtlConfig(self._ttl_ms, self._update_type, self._visibility, self._time, self._cleanup)

    def _in_background(self, number: int, what: str) -> StateTtlConfigBuilder:
        if number <= 0:
            raise ConfigError(f"{what} is {number}; it must be above 0")
        self._cleanup = True
        return self
