"""Messages are read by many threads of a server at once, also the first of each kind."""

from __future__ import annotations

import subprocess
import sys

# Processes in which nothing was read before, one after the other.
PROGRAM = """
import os, sys, threading
from msgspec import json
from forkpoint.protocol import messages as m

kinds = {
    m.StatusMessage: m.StatusMessage(job="j", run="r", state="running", epoch=1, started_ms=1, now_ms=2, restarts=0,
        parallelism=1, records={}, sources=[], watermarks={}, savepoint_progress=m.SavepointProgress(1, 2), failure=None, pid=1,
        problems=[m.Problem("warning", "watermark", None, "text")]),
    m.JournalMessage: m.JournalMessage("j", "r", [m.EpochEntry(1, {"planned": 1})], [m.FailureEntry(1, "f")], [], 1, 1),
    m.ErrorMessage: m.ErrorMessage(m.ErrorDetail("internal", "text")),
}
written = {kind: json.encode(message) for kind, message in kinds.items()}


def read(barrier):
    barrier.wait()
    for kind, data in written.items():
        assert m.read(data, kind) == kinds[kind]


for _ in range(40):
    pid = os.fork()
    if not pid:
        sys.setswitchinterval(1e-6)
        barrier = threading.Barrier(8)
        threads = [threading.Thread(target=read, args=[barrier]) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_the_first_messages_may_come_side_by_side() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
