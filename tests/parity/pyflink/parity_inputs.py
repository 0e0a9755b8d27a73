"""The generated, bounded inputs of the parity programs: tuples (key, timestamp in ms, seq, value), out of order."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from typing import Any

START_MS = 1_000_000  # above 0: Flink's windows and watermarks of negative times are another matter


@dataclass(frozen=True)
class Input:
    """One source's elements. ``bound_ms``: how far behind the greatest timestamp its watermark is; None for no
    watermark before the end. ``after``: the inputs whose elements all come first.
    """

    rows: tuple[tuple[Any, ...], ...]
    seed: int
    bound_ms: int | None
    after: tuple[str, ...] = ()

    def describe(self) -> dict[str, Any]:
        """What is recorded of it: the digest shows when the generator has changed and everything must be recorded anew."""
        digest = hashlib.sha256(json.dumps([self.rows, self.bound_ms, self.after]).encode()).hexdigest()
        return {"seed": self.seed, "rows": len(self.rows), "digest": digest[:16]}


def readings(
    seed: int,
    count: int = 80,
    *,
    keys: str = "abc",
    step_ms: int = 700,
    disorder_ms: int = 4_000,
    silence_ms: int = 8_000,
    bound_ms: int | None = 2_000,
    tail_ms: int = 0,
    after: tuple[str, ...] = (),
) -> Input:
    """``count`` elements, ``step_ms`` apart in the mean, each up to ``disorder_ms`` behind its time.

    With a bound below the disorder some are late. Timestamps are distinct, for equal ones leave results open in Flink too.
    Now and then there is a silence, for sessions to end in. ``tail_ms``: for so long there are then elements of a key
    "tail", so that the watermark passes the end of the others' windows in small steps.
    """
    random_ = random.Random(seed)
    rows: list[tuple[str, int, int, int]] = []
    taken: set[int] = set()
    now_ms = START_MS
    for seq in range(count):
        now_ms += random_.randrange(2 * step_ms)
        if random_.random() < 0.04:
            now_ms += silence_ms
        timestamp = now_ms - (random_.randrange(disorder_ms + 1) if disorder_ms and random_.random() < 0.5 else 0)
        while timestamp in taken:
            timestamp += 1
        taken.add(timestamp)
        rows.append((random_.choice(keys), timestamp, seq, random_.randrange(-20, 100)))
    rows += [("tail", at, count, 0) for at in range(now_ms + 1, now_ms + tail_ms, 400)]
    return Input(tuple(rows), seed, bound_ms, after)
