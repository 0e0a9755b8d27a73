"""The examples on Spark, all in one session: the same results as on the local engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from example_programs import alarms_of_both_versions, averages, digit_counts
from test_examples import ALARMS

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    from forkpoint.spark.session import get_session

    local = str(tmp_path_factory.mktemp("spark"))
    spark = get_session({"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.local.dir": local})
    yield
    spark.stop()


def test_the_mean_of_every_two_numbers() -> None:
    assert averages("spark") == averages("local") == [(1, 4), (1, 5)]


def test_each_number_is_counted_once() -> None:
    assert digit_counts("spark") == digit_counts("local")


def test_both_alarm_versions(tmp_path: Path) -> None:
    assert alarms_of_both_versions("spark", tmp_path) == ALARMS
