"""The documentation's commands, run as written there, on the local engine."""

from __future__ import annotations

import os
from pathlib import Path

from programs import run_python

CLI = ["-m", "forkpoint.cli"]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FORKPOINT_")}
    return {**kept, "FORKPOINT_ENGINE": "local", "COLUMNS": "200"}


def forkpoint(line: str, directory: Path) -> str:
    """What a command prints; it must succeed."""
    name, *arguments = line.split()
    assert name == "forkpoint"
    done = run_python([*CLI, *arguments], cwd=directory, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def cancel(job: str, directory: Path) -> None:
    """End the job if it still runs."""
    run_python([*CLI, "cancel", job], cwd=directory, env=environment(), capture_output=True, check=False)
