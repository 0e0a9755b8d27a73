"""The scenarios, and the line of JSON in which each side reports its measurement.

A *scenario* is one workload of one side, run in its own process:

    python benchmarks/spark_reference.py NAME
    python benchmarks/forkpoint_side.py NAME

prints `Measurement` as JSON on the last line of its standard output. A *comparison* puts one scenario of each side in
a row of the report. All work is on the same bids (benchmarks/data.py): count and sum of the amounts by key.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import Literal

CORES = 2  # of either side: local[2], two subtasks


def use_cores() -> None:
    """Pin this process and its children to CORES CPUs, if the system supports it.

    `local[2]` alone limits tasks: the JVM's compiler and collector threads would use the machine's other CPUs.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


Unit = Literal["rows/s", "keys/s", "ms/epoch", "s", "%"]


@dataclass(frozen=True)
class Scenario:
    """One workload. `epochs` counts the warm-up epochs, which are left out of the figures.

    `kind` is the implementation; each side has its own names and dispatches on them.
    """

    kind: str
    rows_per_epoch: int
    epochs: int
    warm_up: int = 1
    keys: int = 100_000


@dataclass(frozen=True)
class Comparison:
    """One row of the report. `reference` is None for a figure that stands alone."""

    name: str
    unit: Unit
    forkpoint: str
    reference: str | None


@dataclass(frozen=True)
class Measurement:
    """The measurement of one process, without warm-up.

    rows_per_second: all measured rows over all measured time.
    epoch_seconds: each measured epoch's time, commit included.
    rows: all rows that the process handled, warm-up included; the result was compared with the expected one key by key.
    share: of a savepoint's bytes that are its own.
    """

    rows_per_second: float
    epoch_seconds: list[float]
    rows: int
    share: float = 1.0

    @classmethod
    def of_epochs(cls, epochs: list[tuple[int, float]], warm_up: int) -> Measurement:
        """From (rows, seconds) of every epoch in order."""
        steady = epochs[warm_up:]
        if not steady:
            raise ValueError(f"{len(epochs)} epochs, {warm_up} of them warm-up: nothing is left to measure")
        rows_per_second = sum(rows for rows, _ in steady) / sum(seconds for _, seconds in steady)
        return cls(rows_per_second, [seconds for _, seconds in steady], sum(rows for rows, _ in epochs))

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Measurement:
        return cls(**json.loads(text))


# The JVM compiles while it works: running totals warm up with 2.5M rows on both sides. A state call from Python costs Spark
# 100 µs and more: one such epoch takes longer than all of that, so they are few and small.
SPARK_SCENARIOS = {
    "transform_with_state_500k": Scenario("transform_with_state", 500_000, epochs=2),
    "transform_with_state_2500k": Scenario("transform_with_state", 2_500_000, epochs=2),
    "transform_with_state_by_element_500k": Scenario("transform_with_state_by_element", 500_000, epochs=2),
    "apply_in_pandas_100k": Scenario("apply_in_pandas", 100_000, epochs=2),
    "jvm_aggregate_500k": Scenario("jvm_aggregate", 500_000, epochs=25, warm_up=5),
    "jvm_aggregate_2500k": Scenario("jvm_aggregate", 2_500_000, epochs=6),
    "jvm_tumbling_500k": Scenario("jvm_tumbling", 500_000, epochs=4),
    "jvm_tumbling_2500k": Scenario("jvm_tumbling", 2_500_000, epochs=2),
    "jvm_sliding_500k": Scenario("jvm_sliding", 500_000, epochs=2),
    "jvm_session_500k": Scenario("jvm_session", 500_000, epochs=4),
    "jvm_aggregate_1k": Scenario("jvm_aggregate", 1_000, epochs=60, warm_up=20),
}

FORKPOINT_SCENARIOS = {
    "process_500k": Scenario("process", 500_000, epochs=25, warm_up=5),
    "process_2500k": Scenario("process", 2_500_000, epochs=6),
    "map_with_state_500k": Scenario("map_with_state", 500_000, epochs=25, warm_up=5),
    "map_with_state_2500k": Scenario("map_with_state", 2_500_000, epochs=6),
    "sum_500k": Scenario("sum", 500_000, epochs=25, warm_up=5),
    "sum_2500k": Scenario("sum", 2_500_000, epochs=6),
    "process_batch_500k": Scenario("process_batch", 500_000, epochs=25, warm_up=5),
    "process_batch_2500k": Scenario("process_batch", 2_500_000, epochs=6),
    "tumbling_500k": Scenario("tumbling", 500_000, epochs=7),
    "tumbling_2500k": Scenario("tumbling", 2_500_000, epochs=4),
    "sliding_500k": Scenario("sliding", 500_000, epochs=5),
    "session_500k": Scenario("session", 500_000, epochs=7),
    "sql_500k": Scenario("sql", 500_000, epochs=25, warm_up=5),
    "sql_2500k": Scenario("sql", 2_500_000, epochs=6),
    "agg_1k": Scenario("agg", 1_000, epochs=60, warm_up=20),
    "join_500k": Scenario("join", 500_000, epochs=10, warm_up=2),
    "sql_1k": Scenario("sql", 1_000, epochs=60, warm_up=20),
    "process_1k": Scenario("process", 1_000, epochs=60, warm_up=20),
    "savepoint_2m": Scenario("savepoint", 250_000, epochs=60, keys=2_000_000),
    "next_savepoint_2m": Scenario("next_savepoint", 250_000, epochs=0, keys=2_000_000),
    "no_savepoint_2m": Scenario("no_savepoint", 250_000, epochs=20, keys=2_000_000),
    "restore_2m": Scenario("restore", 250_000, epochs=4, keys=2_000_000),
    "savepoint_10m": Scenario("savepoint", 250_000, epochs=120, keys=10_000_000),
    "next_savepoint_10m": Scenario("next_savepoint", 250_000, epochs=0, keys=10_000_000),
    "no_savepoint_10m": Scenario("no_savepoint", 250_000, epochs=20, keys=10_000_000),
    "restore_10m": Scenario("restore", 250_000, epochs=4, keys=10_000_000),
    "rescale_10m": Scenario("rescale", 250_000, epochs=4, keys=10_000_000),
    "migrate_10m": Scenario("migrate", 250_000, epochs=4, keys=10_000_000),
}

COMPARISONS = (
    Comparison(
        "KeyedProcessFunction, 500k-row epochs, vs transformWithState",
        "rows/s",
        "process_500k",
        "transform_with_state_by_element_500k",
    ),
    Comparison(
        "KeyedProcessFunction, 2.5M-row epochs, vs transformWithState (500k-row epochs)",
        "rows/s",
        "process_2500k",
        "transform_with_state_by_element_500k",
    ),
    Comparison(
        "map_with_state, 500k-row epochs, vs transformWithState",
        "rows/s",
        "map_with_state_500k",
        "transform_with_state_by_element_500k",
    ),
    Comparison(
        "map_with_state, 2.5M-row epochs, vs transformWithState (500k-row epochs)",
        "rows/s",
        "map_with_state_2500k",
        "transform_with_state_by_element_500k",
    ),
    Comparison(
        "KeyedProcessFunction, 500k-row epochs, vs transformWithState with state once a key",
        "rows/s",
        "process_500k",
        "transform_with_state_500k",
    ),
    Comparison(
        "KeyedProcessFunction, 2.5M-row epochs, vs transformWithState with state once a key",
        "rows/s",
        "process_2500k",
        "transform_with_state_2500k",
    ),
    Comparison(
        "map_with_state, 500k-row epochs, vs transformWithState with state once a key",
        "rows/s",
        "map_with_state_500k",
        "transform_with_state_500k",
    ),
    Comparison(
        "map_with_state, 2.5M-row epochs, vs transformWithState with state once a key",
        "rows/s",
        "map_with_state_2500k",
        "transform_with_state_2500k",
    ),
    Comparison(
        "KeyedProcessFunction, 500k-row epochs, vs applyInPandasWithState (100k-row epochs)",
        "rows/s",
        "process_500k",
        "apply_in_pandas_100k",
    ),
    Comparison(
        "KeyedProcessFunction, 500k-row epochs, vs Spark's JVM aggregation",
        "rows/s",
        "process_500k",
        "jvm_aggregate_500k",
    ),
    Comparison(
        "KeyedProcessFunction, 2.5M-row epochs, vs Spark's JVM aggregation",
        "rows/s",
        "process_2500k",
        "jvm_aggregate_2500k",
    ),
    Comparison(
        "map_with_state, 500k-row epochs, vs Spark's JVM aggregation",
        "rows/s",
        "map_with_state_500k",
        "jvm_aggregate_500k",
    ),
    Comparison(
        "map_with_state, 2.5M-row epochs, vs Spark's JVM aggregation",
        "rows/s",
        "map_with_state_2500k",
        "jvm_aggregate_2500k",
    ),
    Comparison("built-in sum, 500k-row epochs, vs Spark's JVM aggregation", "rows/s", "sum_500k", "jvm_aggregate_500k"),
    Comparison("built-in sum, 2.5M-row epochs, vs Spark's JVM aggregation", "rows/s", "sum_2500k", "jvm_aggregate_2500k"),
    Comparison(
        "process_batch, 500k-row epochs, vs Spark's JVM aggregation",
        "rows/s",
        "process_batch_500k",
        "jvm_aggregate_500k",
    ),
    Comparison(
        "process_batch, 2.5M-row epochs, vs Spark's JVM aggregation",
        "rows/s",
        "process_batch_2500k",
        "jvm_aggregate_2500k",
    ),
    Comparison(
        "tumbling windows (60 s), 500k-row epochs, vs Spark's window aggregation",
        "rows/s",
        "tumbling_500k",
        "jvm_tumbling_500k",
    ),
    Comparison(
        "tumbling windows (60 s), 2.5M-row epochs, vs Spark's window aggregation",
        "rows/s",
        "tumbling_2500k",
        "jvm_tumbling_2500k",
    ),
    Comparison(
        "sliding windows (60 s / 10 s), 500k-row epochs, vs Spark's window aggregation",
        "rows/s",
        "sliding_500k",
        "jvm_sliding_500k",
    ),
    Comparison(
        "session windows (30 s), 500k-row epochs, vs Spark's session_window",
        "rows/s",
        "session_500k",
        "jvm_session_500k",
    ),
    Comparison("SQL count and sum, 500k-row epochs, vs Spark's JVM aggregation", "rows/s", "sql_500k", "jvm_aggregate_500k"),
    Comparison("SQL count and sum, 2.5M-row epochs, vs Spark's JVM aggregation", "rows/s", "sql_2500k", "jvm_aggregate_2500k"),
    Comparison("SQL inner join of two streams by 1M keys, 500k-row epochs", "rows/s", "join_500k", None),
    Comparison("an epoch of 1k rows of SQL, vs Spark's JVM aggregation", "ms/epoch", "sql_1k", "jvm_aggregate_1k"),
    Comparison("an epoch of 1k rows of SQL, vs that of agg", "ms/epoch", "sql_1k", "agg_1k"),
    Comparison("an epoch of 1k rows, vs Spark's JVM aggregation", "ms/epoch", "process_1k", "jvm_aggregate_1k"),
    Comparison("savepoint of 2M keys while the job runs", "s", "savepoint_2m", None),
    Comparison("throughput while a savepoint of 2M keys is taken, vs without", "rows/s", "savepoint_2m", "no_savepoint_2m"),
    Comparison("the next savepoint of 2M keys after 1 % changed", "s", "next_savepoint_2m", None),
    Comparison("its share of the bytes", "%", "next_savepoint_2m", None),
    Comparison("restore of 2M keys, to the first commit", "s", "restore_2m", None),
    Comparison("savepoint of 10M keys while the job runs", "s", "savepoint_10m", None),
    Comparison("throughput while a savepoint of 10M keys is taken, vs without", "rows/s", "savepoint_10m", "no_savepoint_10m"),
    Comparison("the next savepoint of 10M keys after 1 % changed", "s", "next_savepoint_10m", None),
    Comparison("its share of the bytes, of 10M keys", "%", "next_savepoint_10m", None),
    Comparison("restore of 10M keys, to the first commit", "s", "restore_10m", None),
    Comparison("restore of 10M keys at parallelism 3 instead of 2, to the first commit", "s", "rescale_10m", None),
    Comparison("restore of 10M keys whose values are migrated in Python, to the first commit", "s", "migrate_10m", None),
    Comparison("entries saved, of 10M keys", "keys/s", "savepoint_10m", None),
    Comparison("entries restored, of 10M keys", "keys/s", "restore_10m", None),
    Comparison("entries restored at parallelism 3 instead of 2, of 10M keys", "keys/s", "rescale_10m", None),
    Comparison("entries restored and migrated in Python, of 10M keys", "keys/s", "migrate_10m", None),
)
