"""Runs of programs up to a point whose output reaches no sink: jobs in a state root of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.checkpoint.paths import JobPaths, catalog_file
from forkpoint.operations.launch.detached import driver_command, tail
from forkpoint.operations.launch.failed import DriverFailed
from forkpoint.operations.launch.request import RunRequest
from forkpoint.operations.observer import OnStep
from forkpoint.operations.roots import StateRoot
from forkpoint.savepoint.catalog.names import all_savepoints
from forkpoint.storage.base import Storage
from forkpoint.table.stored_catalogs import newest_versions

_REPORT_SECONDS = 2.0


def records_read(sources: Mapping[str, SourcePosition]) -> int:
    """How many elements sources have read, up to their positions."""
    return sum(split.count for position in sources.values() for split in position.splits.values())


@dataclass(frozen=True)
class Trials:
    """``logs``: a local directory. ``request``: the options of all runs."""

    root: StateRoot
    logs: Path
    request: RunRequest

    @staticmethod
    def beside(storage: Storage, root: StateRoot, logs: Path, request: RunRequest) -> Trials:
        """Trials in ``root`` whose programs find the catalogues of tables that ``storage`` has."""
        for name, version in newest_versions(storage).items():
            file = catalog_file(name, version)
            root.storage.create(file, storage.read(file))
        return Trials(root, logs, request)

    def run(self, name: str, app: str, until: str, capture: str, what: str, report: OnStep) -> None:
        """Run a program as job ``name``, and report the progress of ``what`` this is. Raises DriverFailed. Kills it if
        interrupted."""
        log = self.logs / f"{name}.log"
        request = replace(self.request, app=app, name=name, until=until, capture=capture)
        with open(log, "ab") as output:
            process = subprocess.Popen(
                [*driver_command(self.root), *request.command_line],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        with process:
            code = self._wait(process, name, what, report)
        if code:
            raise DriverFailed(f"{what} ({app}) ended with exit code {code}", "JobFailed", code, tail(log))

    def _wait(self, process: subprocess.Popen[bytes], name: str, what: str, report: OnStep) -> int:
        try:
            while True:
                try:
                    return process.wait(_REPORT_SECONDS)
                except subprocess.TimeoutExpired:
                    newest = History(self.root.storage, JobPaths(name)).newest()
                    at = "starting" if newest is None else f"at epoch {newest.epoch}, {records_read(newest.sources):,} rows read"
                    report(f"{what} is {at}")
        except BaseException:
            process.kill()
            raise

    def savepoint(self, name: str) -> str | None:
        """The savepoint that a run stopped with; None if its inputs ended first."""
        taken = all_savepoints(self.root.storage, name)
        return taken[-1].path if taken else None
