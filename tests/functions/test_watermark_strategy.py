from datetime import UTC, datetime, timedelta, timezone

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.errors import ConfigError
from forkpoint.functions import (
    Duration,
    Time,
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkStrategy,
    epoch_ms,
    to_ms,
)


class ByField(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value["time"] + record_timestamp


class Punctuated(WatermarkGenerator):
    def __init__(self):
        self.seen = 0

    def on_event(self, value, event_timestamp, output):
        self.seen += 1

    def on_periodic_emit(self, output):
        pass


def test_bounds_are_milliseconds():
    assert WatermarkStrategy.for_monotonous_timestamps().out_of_orderness_ms == 0
    assert WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(20)).out_of_orderness_ms == 20_000
    assert WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=1.9)).out_of_orderness_ms == 1
    assert WatermarkStrategy.no_watermarks().out_of_orderness_ms is None


def test_with_methods_leave_the_strategy_as_it_was():
    plain = WatermarkStrategy.for_monotonous_timestamps()
    idle = plain.with_idleness(timedelta(minutes=1)).with_watermark_alignment("g", timedelta(seconds=20))
    assert plain == WatermarkStrategy.for_monotonous_timestamps()
    assert idle.idleness_ms == 60_000
    assert (idle.alignment.group, idle.alignment.max_drift_ms, idle.alignment.update_interval_ms) == (
        "g",
        20_000,
        1_000,
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: s.with_idleness(timedelta(0)), "idle_timeout is 0 ms"),
        (lambda s: s.with_watermark_alignment("", timedelta(1)), "watermark_group is empty"),
        (lambda s: s.with_timestamp_assigner(5), "timestamp assigner"),
        (lambda s: s.for_bounded_out_of_orderness(-1), "max_out_of_orderness is -1"),
        (lambda s: s.for_bounded_out_of_orderness("5 s"), "give a timedelta"),
        (lambda s: s.for_generator(Punctuated()), "for_generator"),
    ],
)
def test_wrong_values_are_config_errors(make, message):
    with pytest.raises(ConfigError, match=message):
        make(WatermarkStrategy.for_monotonous_timestamps())


def test_timestamp_functions():
    base = WatermarkStrategy.for_monotonous_timestamps()
    assert base.timestamp_function() is None
    assert base.with_timestamp_assigner(ByField()).timestamp_function()({"time": 5}, 2) == 7
    assert base.with_timestamp_assigner(lambda e, ts: e).timestamp_function()(8, 0) == 8
    moment = datetime(1970, 1, 1, 1, 0, 0, 7000, timezone(timedelta(hours=1)))
    assert base.with_timestamp_assigner(lambda e, ts: moment).timestamp_function()(None, 0) == 7
    with pytest.raises(ValueError, match="no time zone"):
        base.with_timestamp_assigner(lambda e, ts: moment.replace(tzinfo=None)).timestamp_function()(None, 0)
    with pytest.raises(TypeError, match="'soon'"):
        base.with_timestamp_assigner(lambda e, ts: "soon").timestamp_function()(None, 0)


@given(st.integers(-(10**13), 10**14))
def test_datetimes_and_milliseconds_agree(ms):
    assert epoch_ms(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)) == ms == epoch_ms(ms)


def test_a_generator_keeps_its_attributes_by_default():
    made = WatermarkStrategy.for_generator(Punctuated).generator_factory()
    made.on_event(None, 0, None)
    again = Punctuated()
    again.restore_state(made.snapshot_state())
    assert again.seen == 1


def test_durations_are_timedeltas():
    assert Duration.of_minutes(2) == timedelta(minutes=2) == Time.minutes(2) == Duration.of_millis(120_000)
    assert Duration.of_seconds(1, 500_000_000) == timedelta(seconds=1.5)
    assert Time.milliseconds(1500).to_milliseconds() == 1500 == Duration.of_nanos(1_500_000_000).to_millis()
    assert Time.hours(25).days == 1  # timedelta's own attributes stay what they are
    assert cloudpickle.loads(cloudpickle.dumps(Duration.of_days(3))) == timedelta(days=3)
    assert to_ms(Duration.of_hours(1), "x") == 3_600_000
    with pytest.raises(ConfigError, match="True"):
        to_ms(True, "x")
