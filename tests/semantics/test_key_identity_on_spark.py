"""Keys that are the same on the local engine are the same on Spark, for elements and for a DataFrame's columns."""

from decimal import Decimal
from typing import NamedTuple

import pytest

import forkpoint as fp

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]

PRICES = [Decimal("2.5"), Decimal("2.50"), Decimal("3"), Decimal("3.00")] * 2
ANYTHING = [1, True, 1.0, (1,), (True,), float("nan"), 0.0, -0.0] * 2


class Sale(NamedTuple):
    price: Decimal
    weight: float
    n: int


def environment(rows):
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "spark"})
    return env.set_parallelism(2).set_max_epoch_rows(rows)


def test_elements():
    env = environment(3)
    by_price = env.from_collection([(key, 1) for key in PRICES]).key_by(lambda e: e[0], Decimal)
    by_any = env.from_collection([(key, 1) for key in ANYTHING]).key_by(lambda e: e[0])
    counts = [by.map_with_state(lambda e, n: ((n or 0) + 1,) * 2, int, int) for by in (by_price, by_any)]
    assert sorted(counts[0].execute_and_collect()) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert sorted(counts[1].execute_and_collect()) == [1] * 8 + [2] * 8


def test_the_columns_of_a_dataframe(session):
    rows = [(price, weight, n) for n, (price, weight) in enumerate(zip(PRICES, [0.0, -0.0, float("nan"), 1.0] * 2, strict=True))]
    frame = session.createDataFrame(rows, "price decimal(10, 2), weight double, n bigint")
    env = environment(3)
    stream = env.from_dataframe(frame)
    found = stream.key_by("price").agg(count=fp.Count()).map(lambda r: (str(r.price), r.count))
    assert sorted(found.execute_and_collect()) == [(p, n) for p in ("2.5", "3") for n in (1, 2, 3, 4)]
