"""Aggregate functions: the accumulators that they need, and their results."""
