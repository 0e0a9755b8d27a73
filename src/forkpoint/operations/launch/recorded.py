"""Records the programs of runs and starts them again.

The virtual environment for executors is packed in advance, before a job stops or waits for it; the driver finds it in the cache.
"""

from __future__ import annotations

import itertools
import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import PROGRAMS, JobPaths
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.driver.start.programs import ENGINE, Program, StartedProgram, content_of, find_program, load_files, load_program
from forkpoint.operations.launch.program import Source
from forkpoint.operations.launch.request import RunRequest
from forkpoint.operations.observer import Observer
from forkpoint.operations.roots import StateRoot
from forkpoint.pyflink import install, installed
from forkpoint.spark.shipping.archive import packed_environment
from forkpoint.storage.private import make_directories, open_new

PREFIX = "run:"
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


@dataclass(frozen=True)
class Invocation:
    """A program to run, its arguments, and the overrides of its options and name. ``submitted``: see ``Program``."""

    source: Source
    arguments: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    name: str | None = None
    submitted: bool = False

    def record(self, driver: JobDriver) -> None:
        """Save the program with the driver's run, which is about to start."""
        source = self.source
        StartedProgram(
            source.path, source.text, source.directories, self.arguments, installed(), self.name, self.options, self.submitted
        ).record(driver)


def invocation(root: StateRoot, request: RunRequest) -> Invocation:
    """The invocation for a request. ``run:RUN`` is the recorded program of that run, with the request's overrides; this process
    then changes to its working directory."""
    if not request.app.startswith(PREFIX):
        return Invocation(Source.read(request.app), request.arguments, request.overrides, request.name)
    run, storage = request.app.removeprefix(PREFIX), root.storage
    job, program = find_program(storage, run)
    files = load_files(storage, job, run, program)
    source = _restored(program, files, Path(root.log_directory) / PROGRAMS / run)
    if os.path.isdir(program.directory):
        os.chdir(program.directory)
    if program.engine is not None:
        os.environ[ENGINE] = program.engine
    if program.pyflink:
        install()
    recorded: dict[str, Any] = dict(program.options)
    spark = {**recorded.get("spark", {}), **request.spark}
    if program.submitted and spark:  # as in the recorded process, including sessions that the program creates
        settings = [part for name, value in spark.items() for part in ("--conf", f"{name}={value}")]
        os.environ[_SUBMIT_ARGUMENTS] = shlex.join([*settings, "pyspark-shell"])
    options = {**recorded, **request.overrides, "spark": spark}
    arguments = request.arguments or tuple(program.arguments)
    return Invocation(source, arguments, options, request.name or program.name, program.submitted)


def name_of_entered(root: StateRoot, name: str, text: str) -> str:
    """The name of the job of statements that somebody has entered: ``name`` or, if that is another job or one that has finished,
    NAME-2 and so on. The same statements go on with a job that has not finished."""
    for number in itertools.count(1):
        job = name if number == 1 else f"{name}-{number}"
        newest = History(root.storage, JobPaths(job)).newest()
        if newest is None:
            break
        program = load_program(root.storage, job, newest.run)
        if newest.kind != "end" and program is not None:
            files = load_files(root.storage, job, newest.run, program)
            if files.get(Path(program.app).name) == text.encode():
                break
    return job


def _restored(program: Program, files: dict[str, bytes], copy: Path) -> Source:
    """The recorded program: from its own directory if its modules are unchanged there, otherwise with a copy that takes
    precedence."""
    home = Path(os.path.realpath(program.app)).parent
    text = files[Path(program.app).name]
    modules = {name: content for name, content in files.items() if name != Path(program.app).name}
    if all(content_of(home / name) == content for name, content in modules.items()):
        return Source(program.app, text, (str(home),))
    for name, content in modules.items():
        path = copy / name
        make_directories(str(path.parent))
        path.unlink(missing_ok=True)
        with open(open_new(str(path)), "wb") as file:
            file.write(content)
    return Source(program.app, text, (str(copy), str(home)))


def pack(ship_env: bool, observer: Observer) -> None:
    """Pack the environment of this process and its drivers, if ``ship_env``."""
    if ship_env:
        with observer.progress("packing the environment", "MiB") as report:
            packed_environment(report)
