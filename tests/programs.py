"""Programs of tests that run in processes of their own. They find the modules of the tests (``ENVIRONMENT``)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

PATHS = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]


def environment() -> dict[str, str]:
    """For tests that have changed this process's."""
    return os.environ | {"FORKPOINT_ENGINE": "local", "PYTHONPATH": os.pathsep.join(PATHS)}


ENVIRONMENT = environment()


class Program:
    """One that is killed with its test, at the end of a with statement. It starts at once. Its errors go to a file, so that they
    cannot block it."""

    def __init__(self, program: Path, *arguments: object) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed at the end)
        command = [sys.executable, str(program), *map(str, arguments)]
        self._process = subprocess.Popen(command, env=ENVIRONMENT, start_new_session=True, stderr=self._errors)

    def wait(self) -> int:
        """Wait for its end; its exit code."""
        return self._process.wait()

    def runs(self) -> None:
        """Fail if it has ended."""
        assert self._process.poll() is None, self.stderr()

    def stderr(self) -> str:
        """The end of what it has written."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-3000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()
