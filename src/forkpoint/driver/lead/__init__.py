"""Leadership of a job: leases, standbys and hand-off between runs."""
