"""SQL's scalar functions, as Flink defines them.

Kernels follow SQL: NULL in, NULL out, unless a function says otherwise; AND and OR have three values. Integer division truncates;
integers that overflow, or are divided by zero, are errors. What Arrow has no kernel for is computed once per distinct value.
"""

from forkpoint.relational.functions.arithmetic import ARITHMETIC
from forkpoint.relational.functions.casts import cast, castable
from forkpoint.relational.functions.collections import COLLECTIONS
from forkpoint.relational.functions.encodings import ENCODINGS
from forkpoint.relational.functions.intervals import OF_INTERVALS
from forkpoint.relational.functions.json_paths import JSON
from forkpoint.relational.functions.json_texts import JSON_TEXTS
from forkpoint.relational.functions.logic import LOGIC
from forkpoint.relational.functions.nested import NESTED
from forkpoint.relational.functions.patterns import PATTERNS
from forkpoint.relational.functions.printf import PRINTF
from forkpoint.relational.functions.registry import Datum, Function, broadcast
from forkpoint.relational.functions.seconds import OF_SECONDS
from forkpoint.relational.functions.text import TEXT
from forkpoint.relational.functions.times import TIMES

FUNCTIONS: dict[str, Function] = {
    **LOGIC,
    **ARITHMETIC,
    **TEXT,
    **PRINTF,
    **PATTERNS,
    **ENCODINGS,
    **TIMES,
    **OF_INTERVALS,
    **OF_SECONDS,
    **JSON,
    **JSON_TEXTS,
    **NESTED,
    **COLLECTIONS,
}

__all__ = ["FUNCTIONS", "Datum", "Function", "broadcast", "cast", "castable"]
