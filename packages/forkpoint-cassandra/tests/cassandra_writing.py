"""A program that counts per key and writes the counts to Cassandra; it can kill itself at a step of writing them.

    python cassandra_writing.py HOST TABLE STATE_ROOT ELEMENTS [STEP NUMBER]

STEP: read, note or row, before (or with a trailing "+", after) which it dies the NUMBER-th time.
"""

from __future__ import annotations

import sys
from typing import Any

import forkpoint as fp
from deaths import die_at
from forkpoint_cassandra.committer import CassandraCommitter, Ledger
from key_counts import main
from servers.cassandra_server import PASSWORD, USER

STEPS = {"read": (Ledger, "read"), "note": (Ledger, "write"), "row": (CassandraCommitter, "_bound")}


def sink(host: str, table: str, **options: Any) -> Any:
    options = {"username": USER, "password": PASSWORD, "consistency": "ONE", **options}
    return fp.CassandraSink(host, "tests", table, **options)


if __name__ == "__main__":
    host, table, root, elements, *death = sys.argv[1:]
    if death:
        die_at(STEPS, death[0], int(death[1]))
    main(root, int(elements), sink(host, table, concurrency=4))
