"""What a lookup join needs to know of a table of another system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forkpoint.functions import AsyncLookupFunction, LookupFunction
from forkpoint.relational.types import Schema


@dataclass(frozen=True)
class LookupTable:
    """``function``: finds the list of the rows of a key, a tuple if it has several columns. ``schema``: of these rows.
    ``cache_ttl_ms``: how long they are used again (None: not at all); with ``cache_misses``, also that there are none."""

    function: LookupFunction[Any, Any] | AsyncLookupFunction[Any, Any]
    schema: Schema
    cache_ttl_ms: int | None
    cache_misses: bool
    max_retries: int
