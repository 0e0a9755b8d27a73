"""The examples on the local engine, and what each must give."""

from __future__ import annotations

from pathlib import Path

from example_programs import alarms_of_both_versions, averages, digit_counts


def test_the_mean_of_every_two_numbers() -> None:
    assert averages("local") == [(1, 4), (1, 5)]


def test_each_number_is_counted_once() -> None:
    assert digit_counts("local") == [(digit, count) for digit in range(10) for count in range(1, 101)]


def test_the_second_alarm_version_goes_on_with_the_rooms_that_the_first_one_knew(tmp_path: Path) -> None:
    assert alarms_of_both_versions("local", tmp_path) == ALARMS


ALARMS = {
    "v1": [(1, 5_000)],
    # 30 s are tolerated: room 1 was armed at 1 s by version 1, room 2 at 21 s by itself.
    "v2": [(1, 31_001), (2, 51_001)],
    "v1-again": [(1, 30_000), (1, 31_001), (2, 51_000), (2, 51_001)],
}
