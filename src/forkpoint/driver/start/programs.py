"""program.json and program.zip: the program of a run, so that it can be run again after its files have changed.

The archive has the program's file and the modules beside it that were loaded when the job started, but none that are loaded
later, and no files other than Python's. The record says how the program was started.
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
    """``app``: the file's absolute path; ``directory``: the working directory; ``name``, ``options``: set on the command line;
    ``engine``: set by the environment; ``pyflink``: whether it imports forkpoint as ``pyflink``; ``submitted``: it was started by
    `python` or `spark-submit`, and the Spark settings among the options were those of its process."""

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


def save_program(storage: Storage, job: str, run: str, program: Program, archive: bytes) -> None:
    paths = JobPaths(job)
    storage.put(paths.program_archive(run), archive)
    storage.put(paths.program_file(run), PROGRAM.dump(program))


def load_program(storage: Storage, job: str, run: str) -> Program | None:
    """The run's program; None if there is no record of it."""
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
            if name.startswith("/") or ".." in name.split("/"):  # they may be extracted into a directory
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
            f"run {run!r} of job {jobs[0]!r} has no program on record: {NO_RECORD}; give the program's file instead"
        )
    return jobs[0], program


@dataclass(frozen=True)
class StartedProgram:
    """``path``: the program's file. ``directories``: where its modules are. ``name``, ``options``: what its launcher overrides.
    ``submitted``: the Spark settings among them are those of the process, for sessions of the program's own, too."""

    path: str
    text: bytes
    directories: Sequence[str]
    arguments: Sequence[str]
    pyflink: bool
    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    submitted: bool = False

    def record(self, driver: JobDriver) -> None:
        """Save it with the driver's run, which is about to start."""
        archive = pack(self._files())
        program = Program(
            app=os.path.abspath(self.path),
            arguments=list(self.arguments),
            directory=os.getcwd(),
            name=self.name,
            options=_without_secrets(self.options),
            engine=os.environ.get(ENGINE),
            pyflink=self.pyflink,
            submitted=self.submitted,
            bytes=len(archive),
            checksum=checksum(archive),
        )
        save_program(driver.history.storage, driver.job, driver.run_id, program, archive)

    def _files(self) -> dict[str, bytes]:
        """The program and its loaded modules from its own directories, by relative path."""
        found: dict[str, bytes] = {}
        for qualified, module in list(sys.modules.items()):
            place = None if is_own(qualified) else getattr(module, "__file__", None)
            if isinstance(place, str) and place.endswith(".py") and place != os.path.abspath(self.path):
                name = _within(os.path.realpath(place), self.directories)
                if name is not None and (content := content_of(Path(place))) is not None:
                    found.setdefault(name, content)
        return {**found, os.path.basename(self.path): self.text}


def own_program(spark: Mapping[str, str]) -> StartedProgram | None:
    """What this process was started with, by `python app.py` or `spark-submit app.py`. None if it could not be started again from
    a record: without a file, as in a notebook; from a package (``-m``); by a script of another program.

    ``spark``: the settings that Spark was started with.
    """
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if not isinstance(path, str) or not path.endswith(".py") or getattr(main, "__spec__", None) is not None:
        return None
    text = content_of(Path(path))
    if text is None:
        return None
    home = os.path.dirname(os.path.realpath(path))
    options = {"spark": dict(spark)} if spark else {}
    return StartedProgram(path, text, [home], sys.argv[1:], _runs_pyflink(), options=options, submitted=True)


def _runs_pyflink() -> bool:
    """Whether ``pyflink`` is forkpoint here."""
    spec = getattr(sys.modules.get("pyflink"), "__spec__", None)
    return type(getattr(spec, "loader", None)).__module__.startswith("forkpoint.")


def _without_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """What may be recorded: credentials among Spark's settings are given anew each time."""
    spark = {name: value for name, value in options.get("spark", {}).items() if not _has_secret(name, value)}
    rest = {name: value for name, value in options.items() if name != "spark"}
    return {**rest, "spark": spark} if spark else rest


def _has_secret(name: str, value: str) -> bool:
    return is_secret(name) or (name.endswith("JavaOptions") and is_secret(value))


def content_of(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _within(place: str, directories: Sequence[str]) -> str | None:
    for directory in directories:
        path = Path(place)
        if path.is_relative_to(directory):
            parts = path.relative_to(directory).parts
            if "site-packages" not in parts:
                return "/".join(parts)
    return None
