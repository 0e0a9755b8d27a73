"""Limits for queries from untrusted clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class QueryLimits:
    """Limits of a query. ``rows`` and ``result_bytes`` truncate the result; ``spill_bytes``: on disk."""

    seconds: float
    rows: int
    result_bytes: int
    memory_bytes: int
    spill_bytes: int
    threads: int

    @property
    def config(self) -> dict[str, Any]:
        """DuckDB's settings."""
        return {
            "threads": self.threads,
            "memory_limit": f"{self.memory_bytes}B",
            "max_temp_directory_size": f"{self.spill_bytes}B",
        }
