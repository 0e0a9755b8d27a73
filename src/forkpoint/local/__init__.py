"""The same job in one process, without Spark: for tests, notebooks and small jobs."""
