"""A rehearsal: an epoch without input or state, on an engine that has not run the job yet. Its result is dropped.

The engine warms up: Spark's first job on a new session takes a second longer than the ones that follow. And a program whose
functions do not even open there fails before it leads a job.
"""

from __future__ import annotations

import pickle
from dataclasses import replace

from forkpoint.driver.executor import Executor
from forkpoint.driver.manifests import raise_failure
from forkpoint.runtime.exchange.control import EpochContext, JobSpec, decode_commit

_EMPTY_PLAN = pickle.dumps([], protocol=5)


def rehearse(executor: Executor, layout: JobSpec) -> None:
    """Run that epoch; raises what its tasks raise. ``layout``: of its own, whose stores are removed at the end."""
    executor.start(replace(layout, known_states={}))
    context = EpochContext(
        generation=0, epoch=1, committed=0, processing_time_ms=0, drain=False, previous={}, splits={}, watermarks={},
        snapshot_subtasks=[],
    )  # fmt: skip
    reads_natively = any(source not in layout.graph.frame_sources for source in layout.graph.sources)
    try:
        blobs = executor.run_epoch(context, [_EMPTY_PLAN] * (layout.parallelism if reads_natively else 0))
        raise_failure([decode_commit(blob) for blob in blobs])
    finally:
        executor.close()
