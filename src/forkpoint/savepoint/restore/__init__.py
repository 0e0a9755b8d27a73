"""From a savepoint to the state of a job: whether it fits, how it evolves, and its import."""
