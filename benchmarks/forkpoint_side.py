"""forkpoint's side: one scenario in its own process.

    python benchmarks/forkpoint_side.py NAME [--engine spark|local] [--epochs N]

Prints a ``Measurement`` as JSON. Parquet files in, durable checkpoints on disk, a sink that drops its input (as noop on
Spark's side); the final state is read from a savepoint and compared key by key.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from column_jobs import ASSIGNERS, CountAndSumColumns, KeyTotals, check_windows, open_windows, windowed
from data import KEYS, check_totals, stage_input
from scenarios import CORES, FORKPOINT_SCENARIOS, Measurement, Scenario, use_cores

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.driver.run.job_driver import JobDriver


class Bid(NamedTuple):
    key: int
    amount: int
    ts: int


class CountAndSum(fp.KeyedProcessFunction):
    """Running count and sum of a key's amounts, in one ValueState."""

    totals = fp.ValueStateDescriptor("totals", tuple[int, int])

    def process_element(self, bid: Bid, ctx: fp.KeyedProcessFunction.Context) -> Any:
        totals = self.totals.value()
        count, amount = (totals[0] + 1, totals[1] + bid.amount) if totals else (1, bid.amount)
        self.totals.update((count, amount))
        yield bid.key, count, amount


def count_and_sum(bid: Bid, totals: tuple[int, int] | None) -> tuple[tuple[int, int, int], tuple[int, int]]:
    count, amount = (totals[0] + 1, totals[1] + bid.amount) if totals else (1, bid.amount)
    return (bid.key, count, amount), (count, amount)


class Clock:
    """Records the duration of each epoch, and requests a savepoint after the last one."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.began: dict[int, float] = {}
        self.seconds: list[float] = []
        self.driver: JobDriver | None = None
        self.savepoint: Any = None

    def attach(self, driver: JobDriver) -> Any:
        self.driver = driver
        return lambda ended: None

    def on_step(self, step: str, epoch: int) -> None:
        if step == "planned":
            self.began[epoch] = time.perf_counter()
        elif step == "published":
            self.seconds.append(time.perf_counter() - self.began[epoch])
            if len(self.seconds) == self.epochs and self.driver is not None:
                self.savepoint = self.driver.savepoint(stop=True)


def keyed_bids(env: fp.StreamExecutionEnvironment, directory: Path, *, bounded: bool = True) -> fp.KeyedStream:
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(100).with_timestamp_assigner(lambda bid, _: bid.ts)
    source = fp.FileSource.parquet(str(directory), Bid, bounded=bounded)
    return env.from_source(source, strategy, "bids").uid("bids").key_by(lambda bid: bid.key)


def build(env: fp.StreamExecutionEnvironment, kind: str, directory: Path) -> None:
    keyed = keyed_bids(env, directory)
    match kind:
        case "process":
            totals = keyed.process(CountAndSum())
        case "map_with_state":
            totals = keyed.map_with_state(count_and_sum, tuple[int, int])
        case "process_batch":
            totals = keyed.process_batch(CountAndSumColumns(), KeyTotals)
        case "sum":
            totals = keyed.sum("amount")
        case "agg":
            totals = keyed.agg(count=fp.Count(), sum=fp.Sum("amount"))
        case "sql" | "join":
            tables = fp.StreamTableEnvironment.create(env)
            tables.create_temporary_view("bids", keyed)
            tables.execute_sql("CREATE TABLE totals (key BIGINT, n BIGINT, s BIGINT) WITH ('connector' = 'blackhole')")
            tables.create_statement_set().add_insert_sql(f"INSERT INTO totals {QUERIES[kind]}")
            return
        case "tumbling" | "sliding" | "session":
            totals = windowed(keyed, kind)
        case _:
            raise SystemExit(f"no scenario of kind {kind!r}")
    totals.uid("totals").sink_to(fp.DiscardSink()).uid("discard")


QUERIES = {
    "sql": "SELECT key, COUNT(*), SUM(amount) FROM bids GROUP BY key",
    # Two streams of half of the bids each, by a million keys.
    "join": "SELECT a.key, a.amount, b.amount FROM bids AS a JOIN bids AS b "
    "ON a.key * 10 + a.amount % 10 = b.key * 10 + b.amount % 10 WHERE a.ts % 2 = 0 AND b.ts % 2 = 1",
}


def check_joined(savepoint: Path, rows: int) -> None:
    """Check that a savepoint has the rows of both sides, each as often as it was read."""
    sides = [pq.read_table(savepoint / "operators" / "totals-join-bids" / side) for side in ("left", "right")]
    saved = sum(pc.sum(side.column("value")).as_py() for side in sides)
    if saved != rows:
        raise SystemExit(f"the savepoint has {saved} rows of the {rows} that were read")


def run(scenario: Scenario, engine: str) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="forkpoint-bench-") as temporary:
        directory = Path(temporary) / "bids"
        stage_input(scenario.rows_per_epoch, scenario.epochs, directory)
        read = directory
        if scenario.kind in ASSIGNERS:  # one more, as all windows end with a bounded input
            read = Path(temporary) / "more"
            stage_input(scenario.rows_per_epoch, scenario.epochs + 1, read)
        env = fp.StreamExecutionEnvironment.get_execution_environment()
        env.set_state_root(f"{temporary}/state").set_parallelism(CORES).set_max_epoch_rows(scenario.rows_per_epoch)
        build(env, scenario.kind, read)
        clock = Clock(scenario.epochs)
        env.launch = Launch(options={"engine": engine}, steps=clock, on_driver=clock.attach)
        env.execute("bench")
        savepoint = Path(urlsplit(clock.savepoint.done.result()).path)
        if scenario.kind in ASSIGNERS:
            check_windows(open_windows(savepoint), directory, scenario.kind)
        elif scenario.kind == "join":
            check_joined(savepoint, scenario.rows_per_epoch * scenario.epochs)
        else:
            check_totals(totals_of(savepoint, scenario.kind), directory)
        epochs = [(scenario.rows_per_epoch, seconds) for seconds in clock.seconds]
        return Measurement.of_epochs(epochs[: scenario.epochs], scenario.warm_up)


def totals_of(savepoint: Path, kind: str) -> pa.Table:
    """(key, count, sum) from a savepoint's Parquet files."""
    if kind == "sql":
        groups = pq.read_table(savepoint / "operators" / "totals-group-by-key" / "groups")
        return groups.select(["key", "count", "sum_amount"]).rename_columns(["key", "count", "sum"])
    name = "totals" if kind.startswith("process") else "state"
    state = pq.read_table(savepoint / "operators" / "totals" / name)
    if kind == "process_batch":
        return state.select(["key", "count", "sum"])
    if kind == "sum":  # its state is an element, with the sum in it
        return state.select(["key", "amount"]).rename_columns(["key", "sum"])
    if kind == "agg":
        return state.select(["key", *state.column_names[-2:]]).rename_columns(["key", "count", "sum"])
    return state.select(["key", "f0", "f1"]).rename_columns(["key", "count", "sum"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(FORKPOINT_SCENARIOS))
    parser.add_argument("--engine", default="spark")
    arguments = parser.parse_args()
    use_cores()
    os.environ["SPARK_MASTER"] = f"local[{CORES}]"  # as on Spark's side
    scenario = FORKPOINT_SCENARIOS[arguments.name]
    if scenario.keys > KEYS:
        import savepoint_side

        print(savepoint_side.run(scenario, arguments.engine).to_json())
    else:
        print(run(scenario, arguments.engine).to_json())


if __name__ == "__main__":
    main()
