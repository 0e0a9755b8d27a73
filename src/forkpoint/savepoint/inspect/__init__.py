"""Reads the state of savepoints, and the last committed state of running jobs."""
