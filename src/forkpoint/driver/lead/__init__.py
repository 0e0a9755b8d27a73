"""Which run leads a job, which one waits, and which one takes over."""
