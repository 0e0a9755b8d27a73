"""The local engine: jobs in one process, without Spark, for tests, notebooks and small jobs."""
