"""A file system that is really full: a small one in memory, with a file on it that leaves little room. Only root can mount it;
for others there are the operations that fail as on a full disk."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

from chaos import child
from chaos.case import KILLED, Case, Violation
from chaos.record import Record

SIZE_KIB = 2048


def small_disk(place: Path, rng: random.Random, record: Record) -> None:
    if os.geteuid() != 0 or not _mounted(place):
        record.tell({"skipped": "small disk"})
        return
    try:
        with record.trial(Case(place, rng)) as case:
            _fill_up(case)
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def _fill_up(case: Case) -> None:
    case.add_input(40)
    for _ in range(4):
        case.add_input(20)
        ballast = case.directory / "ballast"
        free = os.statvfs(case.directory)
        room = free.f_bavail * free.f_frsize - case.rng.randrange(0, 100_000)
        ballast.write_bytes(b"\0" * max(0, room))
        plan = case.plan("none", case.program(rows=5, restarts=case.rng.choice((0, 2))))
        process = case.start(plan)
        case.fault("disk really full")
        process.wait(0.8)
        code = process.kill()
        # LMDB's pages are mapped memory: without room for them the system ends the process.
        if code not in (KILLED, child.FAILED, -signal.SIGBUS):
            raise Violation(f"on a full disk the job ended with code {code}")
        ballast.unlink()
        case.check_so_far("after the disk was full")
    case.finish()


def _mounted(place: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_KIB}k", "tmpfs", str(place)]
    return subprocess.run(command, capture_output=True).returncode == 0
