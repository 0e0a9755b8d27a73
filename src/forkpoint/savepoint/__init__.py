"""Savepoints: snapshots of all source positions and all state of a job, as Parquet files that outlive the program.

    format    the files: layout, writing, opening, verifying
    catalog   a job's savepoints: names, labels, summaries, disposal
    export    from a committed epoch to a savepoint
    restore   from a savepoint to a job's state: compatibility, evolution, import
    inspect   reads saved state, and the last committed state of a running job
    edit      writes savepoints, from existing ones or from scratch

This package runs no jobs. ``forkpoint.state_processor`` has the public names of ``inspect`` and ``edit``. Spark, DuckDB and
pandas are loaded only on first use.
"""
