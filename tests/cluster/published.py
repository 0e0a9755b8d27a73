"""The output of a job on a cluster: CSV files of two ints."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path


class Published:
    """Waiting looks at each file once, as what is published does not change: the job needs the processors itself."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._counted: dict[Path, int] = {}

    def rows(self) -> list[tuple[int, int]]:
        lines = [line for file in self.directory.rglob("part-*") for line in file.read_text().splitlines()[1:]]
        return [(int(a), int(b)) for a, b in (line.split(",") for line in lines)]

    def wait_for(self, number: int, process: subprocess.Popen[str]) -> None:
        """Wait for so many rows of a driver that runs."""
        while self._count() < number:
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            time.sleep(0.1)

    def _count(self) -> int:
        for file in self.directory.rglob("part-*"):
            if file not in self._counted:
                self._counted[file] = file.read_bytes().count(b"\n") - 1
        return sum(self._counted.values())
