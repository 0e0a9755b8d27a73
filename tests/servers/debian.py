"""Servers from Debian's packages."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest


def debian(package: str, program: str) -> str:
    """The path of a server's program (a name on PATH, or a pattern), after its package was installed if it is missing. Skips the
    test where that is impossible."""
    if (found := _find(program)) is None:
        install({package: program})
        found = _find(program)
    if found is None:
        pytest.skip(f"needs {program}: install {package}")
    return found


def _find(program: str) -> str | None:
    if "/" in program:
        return max(glob.glob(program), default=None)
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def install(programs: Mapping[str, str]) -> None:
    """Install the packages whose program is missing, if this user may. ``programs``: package → program."""
    missing = [package for package, program in programs.items() if _find(program) is None]
    if not missing or os.getuid() != 0 or shutil.which("apt-get") is None:
        return
    # Packages start their servers as services otherwise. Tests in other processes wait for the same packages.
    policy = Path("/usr/sbin/policy-rc.d")
    with open(Path(tempfile.gettempdir()) / "forkpoint-tests-apt.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        quiet = {"capture_output": True, "env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}}
        own = not policy.exists()
        if own:
            policy.write_text("#!/bin/sh\nexit 101\n")
            policy.chmod(0o755)
        try:
            if subprocess.run(["apt-get", "update", "-qq"], **quiet).returncode == 0:
                subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], **quiet)
        finally:
            if own:
                policy.unlink(missing_ok=True)
