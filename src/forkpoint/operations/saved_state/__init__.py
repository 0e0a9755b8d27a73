"""Savepoints and the state in them: listing, reading, comparing, editing."""
