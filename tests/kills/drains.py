"""Death at the end of a drain."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from forkpoint.driver.run.epochs import EpochRunner

END_DRAIN = EpochRunner.end_drain


def die_in_drain(step: str = "", number: str = "0") -> None:
    """The process dies before the drain's last manifest, or before the n-th file after that appears."""
    if step == "manifest":
        EpochRunner.end_drain = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign, assignment]
    elif step == "rename":
        EpochRunner.end_drain = lambda *args: _at_rename(int(number), *args)  # type: ignore[method-assign]


def _at_rename(left: int, runner: EpochRunner, savepoint: str) -> None:
    rename = Path.rename

    def dies(self: Path, target: Any) -> Path:
        nonlocal left
        left -= self.name.startswith(".part-")
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(self, target)

    Path.rename = dies  # type: ignore[method-assign]
    END_DRAIN(runner, savepoint)
