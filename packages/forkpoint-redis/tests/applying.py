"""A program that counts per key and writes the counts to Redis; it can kill itself at a step of applying them.

    python applying.py URL PREFIX STATE_ROOT ELEMENTS [STEP NUMBER]

STEP: connect, progress or apply, before (or with a trailing "+", after) which it dies the NUMBER-th time.
"""

from __future__ import annotations

import sys
from typing import Any

import forkpoint as fp
from deaths import die_at
from forkpoint_redis import committer
from forkpoint_redis.client import RedisClient
from forkpoint_redis.script import Ledger
from key_counts import KeyCount, main

STEPS = {"connect": (RedisClient, "connect"), "progress": (Ledger, "progress"), "apply": (Ledger, "apply")}


def sink(url: str, prefix: str, **options: Any) -> Any:
    """Appends each count to a list, adds it up, and keeps the newest."""

    def commands(count: KeyCount) -> Any:
        return [
            ("RPUSH", f"{prefix}:list:{count.key}", count.seen),
            ("INCRBY", f"{prefix}:sum", count.seen),
            ("HSET", f"{prefix}:newest", str(count.key), count.seen),
        ]

    return fp.RedisSink(url, commands, **options)


if __name__ == "__main__":
    url, prefix, root, elements, *death = sys.argv[1:]
    committer.CHUNK_COMMANDS = 40  # several chunks in an epoch
    to = sink(url, prefix)
    if death:
        die_at(STEPS, death[0], int(death[1]))
    main(root, int(elements), to)
