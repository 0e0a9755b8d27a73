"""Operators that call external systems: AsyncFunctions and lookup joins."""
