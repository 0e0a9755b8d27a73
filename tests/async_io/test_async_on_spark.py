"""Async I/O in Spark's workers gives what it gives on the local engine."""

from datetime import timedelta

import pytest
from lookup_server import Square, serving

import forkpoint as fp

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]


def results(engine, url):
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": engine})
    env.set_parallelism(2).set_max_epoch_rows(15)
    retry = fp.FixedDelayRetryStrategy(3, 10, exception_predicate=fp.has_exception_predicate)
    numbers = env.from_collection([(n, {"fail": n % 3}) for n in range(40)])
    read = fp.AsyncDataStream.unordered_wait_with_retry(numbers, Square(url), timedelta(seconds=20), retry)  # stage 0
    spread = read.rebalance().map(lambda pair: (pair[1], {}))
    again = fp.AsyncDataStream.ordered_wait(spread, Square(url), timedelta(seconds=20), capacity=3)  # stage 1
    return sorted(again.execute_and_collect())


@pytest.mark.slow
def test_squares_of_squares() -> None:
    expected = sorted((n**2, n**4) for n in range(40))
    with serving() as lookup:
        assert results("spark", lookup.begin().url) == expected
        seen = lookup.begin()
        assert results("local", seen.url) == expected
