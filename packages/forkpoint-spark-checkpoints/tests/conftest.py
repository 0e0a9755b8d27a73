"""The one Spark session, in which queries with any state store can run and be read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import queries


@pytest.fixture(scope="package")
def session(session: SparkSession) -> Iterator[SparkSession]:
    cloudpickle.register_pickle_by_value(queries)  # workers have no path to it
    before = session.conf.get("spark.sql.shuffle.partitions")
    session.conf.set("spark.sql.shuffle.partitions", "3")
    yield session
    session.conf.set("spark.sql.shuffle.partitions", before)
