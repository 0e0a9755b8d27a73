"""A program that counts per key and writes the counts to OpenSearch; it can kill itself at a step of writing them.

    python opensearch_writing.py URL INDEX ID STATE_ROOT ELEMENTS [STEP NUMBER]

ID: "key", "each" (one for each count) or "none". STEP: read, note or bulk, before (or with a trailing "+", after) which it dies
the NUMBER-th time.
"""

from __future__ import annotations

import sys

import forkpoint as fp
from deaths import die_at
from forkpoint_opensearch.committer import Ledger, SearchCommitter
from key_counts import main

STEPS = {"read": (Ledger, "read"), "note": (Ledger, "write"), "bulk": (SearchCommitter, "_bulk")}
IDS = {"key": "key", "each": lambda count: f"{count.key}-{count.seen}", "none": None}

if __name__ == "__main__":
    url, index, id, root, elements, *death = sys.argv[1:]
    if death:
        die_at(STEPS, death[0], int(death[1]))
    main(root, int(elements), fp.OpenSearchSink(url, index, id=IDS[id]))
