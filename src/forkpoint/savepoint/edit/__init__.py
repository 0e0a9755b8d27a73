"""Writes savepoints: changed copies of existing savepoints, or new ones."""
