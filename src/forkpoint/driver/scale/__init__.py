"""Changes the parallelism of a job."""
