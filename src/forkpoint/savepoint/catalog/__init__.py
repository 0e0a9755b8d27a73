"""The savepoints of a job: their names, labels, contents at a glance, and disposing of them."""
