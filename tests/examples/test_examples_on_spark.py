"""The examples on Spark, all in one session: the same results as on the local engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_programs import alarms_of_both_versions, averages, digit_counts
from test_examples import ALARMS

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]


def test_the_mean_of_every_two_numbers() -> None:
    assert averages("spark") == averages("local") == [(1, 4), (1, 5)]


def test_each_number_is_counted_once() -> None:
    assert digit_counts("spark") == digit_counts("local")


def test_both_alarm_versions(tmp_path: Path) -> None:
    assert alarms_of_both_versions("spark", tmp_path) == ALARMS
