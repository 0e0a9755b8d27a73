"""A program that counts per key and appends each count to a table; it can kill itself at a step of a commit.

    python table_jobs.py FORMAT[-upsert][-together] TABLE STATE_ROOT ELEMENTS [STEP NUMBER]

STEP: see the ``STEPS``; before, or with a trailing "+" after, which it dies the NUMBER-th time.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, NamedTuple

from pyiceberg.catalog.sql import SqlCatalog

import forkpoint as fp
from deaths import die_at
from forkpoint_lakehouse import committer, delta, delta_files, iceberg, iceberg_files, uncommitted

KEYS = 10


class Count(NamedTuple):
    """An element, a row of the table."""

    key: int
    seen: int
    name: str


class Counting(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, number: int, ctx: fp.KeyedProcessFunction.Context) -> Any:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield Count(number % KEYS, seen, f"key {number % KEYS}")


def build(env: fp.StreamExecutionEnvironment, elements: int, sink: Any, per_epoch: int = 50) -> None:
    numbers = env.from_source(fp.CounterSource(elements, per_epoch=per_epoch), fp.WatermarkStrategy.no_watermarks(), "numbers")
    counts = numbers.uid("numbers").key_by(lambda n: n % KEYS, int).process(Counting(), Count).uid("counts")
    counts.sink_to(sink).uid("table")


def expected(elements: int) -> list[tuple[int, int, str]]:
    return sorted((n % KEYS, n // KEYS + 1, f"key {n % KEYS}") for n in range(elements))


def make_sink(kind: str, table: str, **options: Any) -> Any:
    return fp.DeltaSink(table, **options) if kind == "delta" else fp.IcebergSink(catalog(table), "ns.counts", **options)


def catalog(directory: str) -> dict[str, str]:
    """A catalog in SQLite, and its tables, in one directory, which exists."""
    return {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}"}


if __name__ == "__main__":
    kind, table, root, elements, *death = sys.argv[1:]
    kind, *modes = kind.split("-")
    options: dict[str, Any] = {"mode": "upsert", "key": ("key",)} if "upsert" in modes else {}
    if "together" in modes:
        options["commit_every"] = timedelta(milliseconds=100)
    if death:
        steps = {
            "note": (uncommitted.Uncommitted, "note"),
            "write": (delta_files.DeltaFiles if kind == "delta" else iceberg_files.IcebergFiles, "write"),
            "commit": (delta._DeltaCommitter if kind == "delta" else iceberg._IcebergCommitter, "_commit"),
            "catalog": (SqlCatalog, "commit_table"),
            "together": (committer.TableCommitter, "_put_together"),
            "settle": (uncommitted.Uncommitted, "settle"),
            "forget": (uncommitted.Uncommitted, "forget"),
        }
        die_at(steps, death[0], int(death[1]))
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(root).set_parallelism(2).enable_checkpointing(1)
    build(env, int(elements), make_sink(kind, table, **options))
    env.execute("counting")
