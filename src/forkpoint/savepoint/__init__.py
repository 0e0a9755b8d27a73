"""Savepoints: export, restore, evolution."""
