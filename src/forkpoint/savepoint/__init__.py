"""Savepoints: exported from a committed manifest, opened and verified, compared with a program, imported, deleted."""
