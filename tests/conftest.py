"""The Spark session that all tests in this process share: starting one takes seconds, and two can't be there at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from forkpoint.spark.session import get_session

    spark = get_session({**SETTINGS, "spark.local.dir": str(tmp_path_factory.mktemp("spark"))})
    yield spark
    spark.stop()
