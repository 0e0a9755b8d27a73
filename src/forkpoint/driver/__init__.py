"""A job's driver plans each epoch, has an engine run its tasks, and commits their results. It works with any engine.

    run         runs epochs and handles requests between them
    commit      commits an epoch and publishes its output
    start       restores a run's initial state, or refuses to start
    scale       changes the parallelism
    lead        leadership: leases, standbys, hand-off
    observe     events, status, metrics and problems of a run
    savepoints  savepoints of a running job, on request and on schedule
    serve       answers requests to the run

One write commits an epoch: that of its manifest (``checkpoint.history``). Every step before it can be repeated, and every step
after it will be. ``run.job_driver`` assembles the rooms; ``run.epochs`` has the loop.
"""
