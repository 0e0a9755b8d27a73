"""Exports a committed epoch as a savepoint."""
