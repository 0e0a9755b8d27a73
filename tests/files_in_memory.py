"""Temporary files in memory. Jobs write and sync thousands of small files: on a disk, tests wait for it most of their time."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

MEMORY = Path("/dev/shm")
NEEDED_BYTES = 4 << 30  # a container may have less; a run of all tests takes one
PREFIX = "forkpoint-tests-"


def keep_files_in_memory() -> None:
    """From now on, temporary files of this process and those that it starts are in memory, unless TMPDIR is set or there is too
    little of it. They stay until the next run, so that a failure can be looked into."""
    if "TMPDIR" in os.environ or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < NEEDED_BYTES:
        return
    for left in MEMORY.glob(f"{PREFIX}*"):
        if not Path("/proc", left.name.removeprefix(PREFIX)).exists():
            shutil.rmtree(left, ignore_errors=True)
    directory = MEMORY / f"{PREFIX}{os.getpid()}"
    with suppress(PermissionError):  # of another user's run, with the same number
        directory.mkdir(exist_ok=True)
        directory.chmod(0o1777)  # as /tmp: servers run as other users
        os.environ["TMPDIR"] = tempfile.tempdir = str(directory)
