"""A subtask at work: operators, keyed context, timers, watermarks, chunks. Knows nothing of Spark."""
