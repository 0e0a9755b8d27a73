"""How many examples a property test looks at.

A test says how many `make test` needs: two or three times as many as it took to find the faults that it was tried with.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

DEFAULT = 25
TIMES = 1 if os.environ.get("EXAMPLES", "same") == "same" else 5  # `make explore` looks at more


def examples(count: int = DEFAULT, **options: Any) -> settings:
    return settings(max_examples=count * TIMES, **options)
