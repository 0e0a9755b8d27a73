"""A job's driver: it plans each epoch, has an engine run its tasks, and commits what they return. It knows no engine.

    run         what happens in an epoch, and between two
    commit      when an epoch is decided, and how its output becomes visible
    start       what a run starts from, and whether it may
    scale       another parallelism
    lead        which run leads, which one waits, and which one takes over
    observe     what people and monitors see of a run
    savepoints  savepoints of a running job, on request and on schedule
    serve       answers to those who ask and command the run

An epoch is decided by one write: that of its manifest (``checkpoint.history``). What happened before can be repeated, what
follows will be. ``run.job_driver`` puts the rooms together; ``run.epochs`` is the loop.
"""
