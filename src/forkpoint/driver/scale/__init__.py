"""Another parallelism for a job."""
