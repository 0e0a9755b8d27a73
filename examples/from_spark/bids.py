"""The program that replaces the query in bids_spark.py: the same source, the same results.

    forkpoint run examples/from_spark/bids.py -s SAVEPOINT -- BIDS OUT

For how to create the savepoint, see docs/from-spark.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import forkpoint as fp


class Bids(NamedTuple):
    """The state of a minute: Spark's buffers of count and max, under other names."""

    bids: int
    highest: float


class Result(NamedTuple):
    auction: int
    minute: int
    bids: int
    highest: float


class CountBids(fp.AggregateFunction):
    def create_accumulator(self) -> Bids:
        return Bids(0, 0.0)

    def add(self, value: Any, accumulator: Bids) -> Bids:
        return Bids(accumulator.bids + 1, max(accumulator.highest, value.price))

    def get_result(self, accumulator: Bids) -> Bids:
        return accumulator

    def merge(self, a: Bids, b: Bids) -> Bids:
        return Bids(a.bids + b.bids, max(a.highest, b.highest))


class WithMinute(fp.ProcessWindowFunction):
    def process(self, key: int, context: Any, elements: Iterable[Bids]) -> Iterator[Result]:
        for counted in elements:
            yield Result(key, context.window().start, *counted)


def counts(env: fp.StreamExecutionEnvironment, bids: Any) -> fp.DataStream:
    """``bids``: the streaming DataFrame that the query read."""
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=10))
    return (
        env.from_dataframe(bids, uid="bids", timestamp="time", watermark_strategy=strategy)
        .key_by(lambda bid: bid.auction, int)
        .window(fp.TumblingEventTimeWindows.of(timedelta(minutes=1)))
        .aggregate(CountBids(), WithMinute(), output_type=Result)
        .uid("counts")
    )


def main(directory: str, out: str) -> None:
    from bids_spark import read

    from forkpoint.spark.session import get_session

    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    counts(env, read(get_session(), directory)).sink_to(fp.FileSink.parquet(out)).uid("out")
    env.execute("bids")


if __name__ == "__main__":
    main(*sys.argv[1:3])
