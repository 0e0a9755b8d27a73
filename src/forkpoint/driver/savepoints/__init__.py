"""Savepoints of a running job: on request and on schedule."""
