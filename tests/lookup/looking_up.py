"""A program that joins numbers with answers that are never the same twice; it can kill itself at a lookup.

    python looking_up.py STATE_ROOT OUTPUT ELEMENTS [STEP NUMBER]

STEP: "ask", once for each epoch and subtask (or with a trailing "+", after), at which it dies the NUMBER-th time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import forkpoint as fp
from deaths import die_at
from forkpoint.runtime.operators.requests.lookup_client import LookupClient

KEYS = 97


class Clock(fp.LookupFunction[int, int]):
    """What it finds is the time, in ns."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def lookup(self, keys: Sequence[int]) -> dict[int, int]:
        found = dict.fromkeys(keys, time.time_ns())
        with self.log.open("a") as file:
            file.writelines(f"{key}\n" for key in keys)
        return found


if __name__ == "__main__":
    root, output, elements, *death = sys.argv[1:]
    if death:
        die_at({"ask": (LookupClient, "look_up")}, death[0], int(death[1]))
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(root).set_parallelism(2).enable_checkpointing(1)
    source = fp.CounterSource(int(elements), per_epoch=50)
    numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    asking = Clock(Path(root) / "asked")
    joined = numbers.lookup_join(asking, key=lambda n: n % KEYS, key_type=int, cache_ttl=timedelta(hours=1)).uid("joined")
    joined.sink_to(fp.FileSink.json(output)).uid("out")
    env.execute("looking-up")
