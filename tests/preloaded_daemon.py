"""The process that Spark forks the tests' Python workers from, with what they use loaded. On its own, each worker takes a second
of a processor for it, and Spark starts a new one after each task that fails."""

from __future__ import annotations

import gc
import os
from importlib import import_module

MODULES = [
    "forkpoint.public",
    "forkpoint.runtime.tasks.entry_points",
    "forkpoint.runtime.tasks.source_task",
    "forkpoint.runtime.tasks.stage_task",
    "forkpoint.spark.tasks",
    "forkpoint.state.lmdb_store",
    "pandas",
    "pyarrow.parquet",
    "pyspark.worker",
]

if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a fork has no threads
    for module in MODULES:
        import_module(module)
    gc.collect()
    gc.freeze()
    import_module("pyspark.daemon").manager()
