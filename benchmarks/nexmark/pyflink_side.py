"""Nexmark on PyFlink, with its own Python: ``pyflink_side.py PARALLELISM DIRECTORY JAR``. Reads names of files with statements
(between NULs), and answers with the seconds that the last, ``STREAM QUERY …``, took, or with the rows of ``COLLECT QUERY``.

The programs are those of ``stream_programs.py`` in PyFlink's words, but for their beginning: the views of the published texts
make bids of events, in Java.
"""

import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

from pyflink.common import Configuration, Row, Time, Types
from pyflink.datastream import AggregateFunction, ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors import Sink
from pyflink.datastream.window import EventTimeSessionWindows
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment

PASSED = Types.ROW_NAMED(
    ["auction", "bidder", "price", "dateTime", "extra"],
    [Types.LONG(), Types.LONG(), Types.LONG(), Types.SQL_TIMESTAMP(), Types.STRING()],
)
PRICE = Types.ROW_NAMED(["auction", "price"], [Types.LONG(), Types.LONG()])
SESSION = Types.ROW_NAMED(
    ["bidder", "bid_count", "starttime", "endtime"], [Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG()]
)


def q0(bids):
    return bids.map(lambda bid: Row(bid.auction, bid.bidder, bid.price, bid.dateTime, bid.extra), PASSED)


def q2(bids):
    return bids.filter(lambda bid: bid.auction % 123 == 0).map(lambda bid: Row(bid.auction, bid.price), PRICE)


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, bid, count):
        return count + 1

    def get_result(self, count):
        return count

    def merge(self, a, b):
        return a + b


class Session(ProcessWindowFunction):
    def process(self, bidder, context, counts):
        yield Row(bidder, next(iter(counts)), context.window().start, context.window().end)


def q11(bids):
    sessions = bids.key_by(lambda bid: bid.bidder, Types.LONG()).window(EventTimeSessionWindows.with_gap(Time.seconds(10)))
    return sessions.aggregate(Count(), Session(), accumulator_type=Types.LONG(), output_type=SESSION)


PROGRAMS = {"q0": q0, "q2": q2, "q11": q11}


def main(parallelism, directory, jar):
    for file in map(str.strip, sys.stdin):
        settings = Configuration()
        settings.set_string("execution.checkpointing.dir", f"file://{directory}")
        settings.set_string("execution.checkpointing.interval", "1 s")
        settings.set_string("restart-strategy.type", "none")
        settings.set_string("python.executable", sys.executable)
        env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(int(parallelism))
        env.add_jars(f"file://{jar}")
        t_env = StreamTableEnvironment.create(env)
        *definitions, asked = Path(file).read_text().split("\0")
        verb, query, *_ = asked.split()
        for each in definitions:
            t_env.execute_sql(each)
        began = time.monotonic()
        found = PROGRAMS[query](t_env.to_data_stream(t_env.from_path("bid")))
        if verb == "STREAM":
            found.sink_to(Sink(get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()))
            env.execute(query)
            print(time.monotonic() - began, flush=True)
        else:
            names = found.get_type().get_field_names()
            # As texts: PyFlink cannot collect a timestamp.
            rows = found.map(lambda row, names=names: "\x1f".join(["1", *map(text, names, row)]), Types.STRING())
            collected = list(rows.execute_and_collect())
            print(len(collected), *collected, sep="\n", flush=True)


def text(name, value):
    """As in ``NexmarkOnFlink.java``."""
    if name.endswith("time"):
        value = datetime(1970, 1, 1) + timedelta(milliseconds=value)  # noqa: DTZ001
    return value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else str(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
