"""Recorded programs: saving what a run was started with, and starting it again."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.paths import PROGRAMS
from forkpoint.control.programs import Program, find_program, load_files, pack, save_program
from forkpoint.driver.job_driver import JobDriver
from forkpoint.graph.secrets import is_secret
from forkpoint.operations.program import Source
from forkpoint.operations.request import RunRequest
from forkpoint.operations.roots import StateRoot
from forkpoint.pyflink import install, installed
from forkpoint.storage.private import make_directories, open_new

PREFIX = "run:"
ENGINE = "FORKPOINT_ENGINE"


@dataclass(frozen=True)
class Invocation:
    """A program to run, its arguments, and what the command line overrides of its options and name."""

    source: Source
    arguments: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    name: str | None = None

    def record(self, driver: JobDriver) -> None:
        """Save it with the driver's run, which is about to start."""
        archive = pack(_files(self.source))
        program = Program(
            app=self.source.place, arguments=list(self.arguments), directory=os.getcwd(), name=self.name,
            options=_without_secrets(self.options), engine=os.environ.get(ENGINE), pyflink=installed(), bytes=len(archive),
            checksum=checksum(archive),
        )  # fmt: skip
        save_program(driver.history.storage, driver.job, driver.run_id, program, archive)


def _without_secrets(options: dict[str, Any]) -> dict[str, Any]:
    """What may be recorded: credentials among Spark's settings are given anew each time."""
    spark = {name: value for name, value in options.get("spark", {}).items() if not is_secret(name)}
    return {**options, "spark": spark} if spark else {name: value for name, value in options.items() if name != "spark"}


def invocation(root: StateRoot, request: RunRequest) -> Invocation:
    """The invocation for a request. ``run:RUN`` is what that run was started with, unless the request overrides it; this
    process then changes to its working directory."""
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
    options = {**recorded, **request.overrides, "spark": {**recorded.get("spark", {}), **request.spark}}
    return Invocation(source, request.arguments or tuple(program.arguments), options, request.name or program.name)


def _restored(program: Program, files: dict[str, bytes], copy: Path) -> Source:
    """The recorded program: from its own directory if its modules are unchanged there, else from a copy that precedes it."""
    home = Path(os.path.realpath(program.app)).parent
    text = files[Path(program.app).name]
    modules = {name: content for name, content in files.items() if name != Path(program.app).name}
    if all(_content(home / name) == content for name, content in modules.items()):
        return Source(program.app, text, (str(home),))
    for name, content in modules.items():
        place = copy / name
        make_directories(str(place.parent))
        place.unlink(missing_ok=True)
        with open(open_new(str(place)), "wb") as file:
            file.write(content)
    return Source(program.app, text, (str(copy), str(home)))


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _files(source: Source) -> dict[str, bytes]:
    """The program and its loaded modules from its own directories, by relative path."""
    found: dict[str, bytes] = {}
    for module in list(sys.modules.values()):
        place = getattr(module, "__file__", None)
        if isinstance(place, str) and place.endswith(".py") and place != source.place:
            name = _within(os.path.realpath(place), source.directories)
            if name is not None and (content := _content(Path(place))) is not None:
                found.setdefault(name, content)
    return {**found, os.path.basename(source.path): source.text}


def _within(place: str, directories: Sequence[str]) -> str | None:
    for directory in directories:
        path = Path(place)
        if path.is_relative_to(directory):
            parts = path.relative_to(directory).parts
            if "site-packages" not in parts and "forkpoint" not in parts[:-1]:
                return "/".join(parts)
    return None
