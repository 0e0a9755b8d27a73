"""program.json and program.zip record a run's program, so that it can run again after its files have changed.

The archive has the program's file and its local modules that were loaded when the job started. It has no modules that are loaded
later, and only Python files. The record has the program's arguments and settings.
"""

from __future__ import annotations

import io
import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from forkpoint.checkpoint.format import Format, Record, checksum, verify
from forkpoint.checkpoint.manifest import Count, Name, Sha256
from forkpoint.checkpoint.paths import JOBS, JobPaths, escape, job_of
from forkpoint.errors import ForkpointError, JobNotFound, NotFound, SavepointCorrupt
from forkpoint.extras import is_own
from forkpoint.graph.secrets import is_secret

if TYPE_CHECKING:
    from forkpoint.driver.run.job_driver import JobDriver
    from forkpoint.storage.base import Storage

ENGINE = "FORKPOINT_ENGINE"
NO_RECORD = (
    "its driver was started in the cluster (`spark-submit --deploy-mode cluster`), in a notebook, with `python -m`, or by an "
    "older release"
)


class Program(Record, frozen=True, kw_only=True):
    """``app``: the file's absolute path; ``directory``: the working directory; ``name``, ``options``: from the command line;
    ``engine``: from the environment; ``pyflink``: whether the program imports forkpoint as ``pyflink``; ``submitted``: `python`
    or `spark-submit` started it, and the Spark settings among the options were those of its process."""

    format_version: Literal[1] = 1
    app: Name
    arguments: list[str]
    directory: str
    name: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    engine: str | None = None
    pyflink: bool = False
    submitted: bool = False
    bytes: Count
    checksum: Sha256


PROGRAM = Format("program.json", Program, 1)


def pack(files: Mapping[str, bytes]) -> bytes:
    """An archive of the files, deterministic."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def load_program(storage: Storage, job: str, run: str) -> Program | None:
    """The run's program; None if none was recorded."""
    try:
        return PROGRAM.load(storage, JobPaths(job).program_file(run))
    except NotFound:
        return None


def load_files(storage: Storage, job: str, run: str, program: Program) -> dict[str, bytes]:
    """The program's files by their paths relative to its directory. Raises NotFound and SavepointCorrupt."""
    path = JobPaths(job).program_archive(run)
    data = verify(storage.read(path), program.checksum, program.bytes, f"{storage.url}/{path}")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        for name in names:
            if name.startswith("/") or ".." in name.split("/"):  # callers may extract them into a directory
                raise SavepointCorrupt(f"{storage.url}/{path} has a file {name!r}, which is outside the program's directory")
        return {name: archive.read(name) for name in names}


def find_program(storage: Storage, run: str) -> tuple[str, Program]:
    """The job and program of a run, by its id. Raises JobNotFound, and ForkpointError if no program was recorded."""
    jobs = [job_of(path) for path in storage.list(JOBS) if f"/runs/{escape(run)}/" in path]
    if not jobs or jobs[0] is None:
        raise JobNotFound(f"there is no run {run!r} under {storage.url}; `forkpoint list -a` and `forkpoint tree` list runs")
    program = load_program(storage, jobs[0], run)
    if program is None:
        raise ForkpointError(
            f"run {run!r} of job {jobs[0]!r} has no recorded program: {NO_RECORD}; give the program's file instead"
        )
    return jobs[0], program


@dataclass(frozen=True)
class StartedProgram:
    """``path``: the program's file. ``directories``: of its modules. ``name``, ``options``: the launcher's overrides.
    ``submitted``: the Spark settings among them are those of the process, and apply to sessions that the program creates, too."""

    path: str
    text: bytes
    directories: Sequence[str]
    arguments: Sequence[str]
    pyflink: bool
    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    submitted: bool = False

    def record(self, driver: JobDriver) -> None:
        """Save the program with the driver's run, which is about to start."""
        archive, spark = pack(self._files()), dict(self.options.get("spark", {}))
        public = {name: value for name, value in spark.items() if not _has_secret(name, value)}
        others = {name: value for name, value in self.options.items() if name != "spark"}
        program = Program(
            app=os.path.abspath(self.path),
            arguments=list(self.arguments),
            directory=os.getcwd(),
            name=self.name,
            options={**others, "spark": public} if public else others,
            engine=os.environ.get(ENGINE),
            pyflink=self.pyflink,
            submitted=self.submitted,
            bytes=len(archive),
            checksum=checksum(archive),
        )
        storage, paths = driver.history.storage, JobPaths(driver.job)
        storage.put(paths.program_archive(driver.run_id), archive)
        storage.put(paths.program_file(driver.run_id), PROGRAM.dump(program))

    def _files(self) -> dict[str, bytes]:
        """The program and its loaded modules from its own directories, by relative path."""
        found: dict[str, bytes] = {}
        for qualified, module in list(sys.modules.items()):
            file = None if is_own(qualified) else getattr(module, "__file__", None)
            if isinstance(file, str) and file.endswith(".py") and file != os.path.abspath(self.path):
                name = _relative(os.path.realpath(file), self.directories)
                if name is not None and (content := content_of(Path(file))) is not None:
                    found.setdefault(name, content)
        return {**found, os.path.basename(self.path): self.text}


def own_program(spark: Mapping[str, str]) -> StartedProgram | None:
    """The program of this process, if `python app.py` or `spark-submit app.py` started it. None if a record could not start it
    again: without a file, as in a notebook; from a package (``-m``); by a script of another program. ``spark``: Spark's
    settings."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if not isinstance(path, str) or not path.endswith(".py") or getattr(main, "__spec__", None) is not None:
        return None
    text = content_of(Path(path))
    if text is None:
        return None
    home = os.path.dirname(os.path.realpath(path))
    options = {"spark": dict(spark)} if spark else {}
    loader = getattr(getattr(sys.modules.get("pyflink"), "__spec__", None), "loader", None)
    runs_pyflink = type(loader).__module__.startswith("forkpoint.")
    return StartedProgram(path, text, [home], sys.argv[1:], runs_pyflink, options=options, submitted=True)


def _has_secret(name: str, value: str) -> bool:
    return is_secret(name) or (name.endswith("JavaOptions") and is_secret(value))


def content_of(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _relative(file: str, directories: Sequence[str]) -> str | None:
    path = Path(file)
    for directory in directories:
        if path.is_relative_to(directory):
            parts = path.relative_to(directory).parts
            if "site-packages" not in parts:
                return "/".join(parts)
    return None
