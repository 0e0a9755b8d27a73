"""Savepoints: snapshots of all source positions and all state of a job, as Parquet files that outlive the program.

    format    the files: layout, writing, opening, verifying
    catalog   a job's savepoints: names, labels, contents at a glance, disposing of them
    export    from a committed epoch to a savepoint
    restore   from a savepoint to the state of a job: does it fit, how does it evolve, its import
    inspect   reading saved state, also that of a job's last committed epoch while it runs
    edit      writing savepoints: from existing ones with changes, or from nothing

It runs no jobs. ``forkpoint.state_processor`` has the public names of ``inspect`` and ``edit``; Spark, DuckDB and pandas are
loaded only when they are used.
"""
