"""Operators that ask other systems: AsyncFunctions and lookup joins."""
