"""program.json and program.zip: the program of a run, so that it can be run again after its files have changed.

The archive has the program's file and the modules beside it that were loaded when the job started, but none that are loaded
later, and no files other than Python's.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, JsonValue

from forkpoint.checkpoint.format import Format, Record, verify
from forkpoint.checkpoint.manifest import Count, Name, Sha256
from forkpoint.checkpoint.paths import JOBS, JobPaths, escape, job_of
from forkpoint.errors import ForkpointError, JobNotFound, NotFound, SavepointCorrupt
from forkpoint.storage.base import Storage


class Program(Record):
    """``app``: the file's absolute path; ``directory``: the working directory; ``name``, ``options``: set on the command line;
    ``engine``: set by the environment; ``pyflink``: whether it imports forkpoint as ``pyflink``; ``submitted``: it was started by
    `python` or `spark-submit`, and the Spark settings among the options were those of its process."""

    format_version: Literal[1] = 1
    app: Name
    arguments: list[str]
    directory: str
    name: str | None = None
    options: dict[str, JsonValue] = Field(default_factory=dict)
    engine: str | None = None
    pyflink: bool = False
    submitted: bool = False
    bytes: Count
    checksum: Sha256


NO_RECORD = (
    "its driver was started in the cluster (`spark-submit --deploy-mode cluster`), in a notebook, with `python -m`, or by an "
    "older release"
)
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
                raise SavepointCorrupt(
                    f"{storage.url}/{path} has a file {name!r}, which is outside the program's directory"
                )
        return {name: archive.read(name) for name in names}


def find_program(storage: Storage, run: str) -> tuple[str, Program]:
    """The job and program of a run, by its id. Raises JobNotFound, and ForkpointError if no program was recorded."""
    jobs = [job_of(path) for path in storage.list(JOBS) if f"/runs/{escape(run)}/" in path]
    if not jobs or jobs[0] is None:
        raise JobNotFound(
            f"there is no run {run!r} under {storage.url}; `forkpoint list -a` and `forkpoint tree` list runs"
        )
    program = load_program(storage, jobs[0], run)
    if program is None:
        raise ForkpointError(
            f"run {run!r} of job {jobs[0]!r} has no program on record: {NO_RECORD}; give the program's file instead"
        )
    return jobs[0], program
